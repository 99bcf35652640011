// evaluator.h - the Evaluator of tuning runs: compiles candidates or finds their code, and has them
// tried on a GPU.
#pragma once

#include <memory>

#include "cache/cache.h"
#include "tuner/evaluate.h"
#include "tuner/trials/trials.h"
#include "tuner/worker/compile_workers.h"

namespace attnforge {

/// For `problem` on `device`. `compilers` null: NVRTC runs in this process. Borrows `cache`, where
/// code is looked up before it is compiled, and which holds what keep() is given. `compile_threads`
/// 0: one a core. prepare() throws Error(kNoDriver) without NVRTC. Destruction waits for compiles
/// in flight, which workers and a newer NVRTC give up. What `overrides` change of a source is that
/// of candidates, never of the oracle.
std::unique_ptr<Evaluator> make_evaluator(const Problem& problem, const DeviceFacts& device,
                                          Cache& cache, std::unique_ptr<Trials> trials,
                                          std::unique_ptr<CompileWorkers> compilers,
                                          int compile_threads, const Overrides& overrides = {});

}  // namespace attnforge
