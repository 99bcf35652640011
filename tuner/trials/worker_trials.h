// worker_trials.h - trials in a process of its own, which may fault, hang or crash: another takes
// its place, and what it fell over is a failed try.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "tuner/trials/gpu_trials.h"
#include "tuner/worker/process.h"

namespace attnforge {

/// No kernel runs in this process, and no CUDA context of it is touched. get_ready() starts the
/// worker and returns at once; load() waits for it. What a worker answers with an Error that is no
/// candidate's fault (no memory, another build) is thrown. After `end`, and a second after
/// `cancelled` (which may be empty) was first true, nothing is waited for any more: the evaluator
/// is then lost, with nobody to blame.
std::unique_ptr<Trials> make_worker_trials(const Problem& problem, const DeviceFacts& device,
                                           const WorkerProgram& program,
                                           const TrialOptions& options,
                                           std::chrono::steady_clock::time_point end,
                                           const std::function<bool()>& cancelled = {});

}  // namespace attnforge
