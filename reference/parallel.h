// parallel.h - independent pieces of work over the cores.
#pragma once

#include <cstdint>
#include <functional>

namespace attnforge {

/// Calls work(i) for every i in [0, count) on `threads` threads (0: one a core), the caller's among
/// them; returns when all are done. The first exception is thrown on, and the pieces not yet begun
/// are then left out.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& work);

}  // namespace attnforge
