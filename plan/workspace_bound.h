// workspace_bound.h - how much workspace suffices for all sizes up to some.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge {

struct SizeBound {
  std::int64_t batch = 1;
  std::int64_t seqlen_q = 1;
  std::int64_t seqlen_kv = 1;
  std::int64_t tokens_q = 0;  // packed: 0: batch * seqlen
  std::int64_t tokens_kv = 0;
};

/// Bytes that suffice for `problem` with this config at every batch and lengths up to the bound.
/// Never shrinks when a part of the bound grows. Throws Error(kInvalidProblem) for sizes out of
/// range.
std::size_t workspace_bound(const Problem& problem, const std::string& config,
                            const DeviceFacts& device, const SizeBound& bound);

}  // namespace attnforge
