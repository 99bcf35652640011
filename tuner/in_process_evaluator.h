// in_process_evaluator.h - the Evaluator that uses the GPU of this process.
#pragma once

#include <memory>

#include "cache/cache.h"
#include "tuner/evaluate.h"

namespace attnforge {

/// For `problem` on `device`, whose context must be current on the calling thread here and in every
/// call, destruction included. Borrows `cache`, where code is looked up before it is compiled, and
/// holds what keep() is given. `compile_threads` 0: one a core. `seed` decides the random inputs
/// and the rows that are compared. Costs nothing until the first prove(): that allocates the
/// tensors, twice the L2 and the oracle's outputs, and throws Error(kCuda) when memory is short.
/// prepare() throws Error(kNoDriver) without NVRTC. A kernel that does not end is given up after 2
/// s, or 50 times the best time so far, or 20 times its own estimate, whichever is longest; its
/// memory is then never freed, since freeing it would wait for the kernel. Destruction waits for
/// compiles in flight, which a newer NVRTC gives up. What `overrides` change of a source is that of
/// candidates, never of the oracle.
std::unique_ptr<Evaluator> make_in_process_evaluator(const Problem& problem,
                                                     const DeviceFacts& device, Cache& cache,
                                                     int compile_threads, unsigned seed,
                                                     const Overrides& overrides = {});

}  // namespace attnforge
