// loaded_candidate.h - a candidate's code on the GPU, ready to run, and the memory that candidates
// take turns with.
#pragma once

#include <optional>
#include <string>

#include "generator/candidates.h"
#include "runtime/loaded_launch.h"
#include "runtime/memory.h"
#include "tuner/compile_pool.h"
#include "tuner/evaluate.h"

namespace attnforge {

/// A workspace as large as the largest of them needs, and counters. One for all: a candidate that
/// keeps its scores in memory needs gigabytes, and dozens are loaded at a time. All run on one
/// stream. Nothing of a run is in it when another candidate runs, but for counters that a wrong one
/// may have left; clear_counters() puts them back.
class SharedWorkspace {
 public:
  /// May move the memory: each run takes it from memory(). Throws Error(kCuda).
  void reserve(const Launch& launch) {
    if (counted_steps(launch) > 0 && counters_.size_bytes() == 0) counters_ = Buffer(kCounterBytes);
    if (launch.workspace_bytes <= workspace_.size_bytes()) return;
    workspace_ = Buffer();  // first: both may not fit
    workspace_ = Buffer(launch.workspace_bytes);
  }

  /// Enqueued on `stream`; before the first run at the latest.
  void clear_counters(CUstream stream) { counters_.fill8(0, stream); }

  RunMemory memory() const {
    return {.workspace = workspace_.data(), .counters = counters_.data()};
  }

 private:
  Buffer workspace_, counters_;
};

class LoadedCandidate {
 public:
  /// Loads what the candidate's launch needs and has `workspace`, which must outlive it, grow to
  /// what it needs. `asked`: the problem of Sizes::kAsked. Throws Error(kCuda).
  LoadedCandidate(const Candidate& candidate, const Problem& problem,
                  const std::optional<Problem>& asked, const DeviceFacts& device,
                  const Compiled& compiled, SharedWorkspace& workspace)
      : config_(to_string(candidate.config)),
        estimate_us_(candidate.estimate_us),
        workspace_(workspace) {
    const Launch launch = candidate.family->launch(candidate.config, problem, device);
    kernels_ = LoadedKernels(compiled.cubin.bytes, compiled.source, launch);
    workspace_.reserve(launch);
    launch_ = LoadedLaunch(launch, kernels_);
    if (!asked) return;
    const Launch of_asked = candidate.family->launch(candidate.config, *asked, device);
    workspace_.reserve(of_asked);
    launch_of_asked_ = LoadedLaunch(of_asked, kernels_);
  }

  /// Enqueues one run on tensors of these sizes. Throws Error(kCuda).
  void run(const Tensors& tensors, CUstream stream, Sizes sizes = Sizes::kBucket) const {
    const LoadedLaunch& launch = sizes == Sizes::kAsked ? launch_of_asked_ : launch_;
    launch.run(tensors, workspace_.memory(), stream);
  }

  const std::string& config() const { return config_; }
  double estimate_us() const { return estimate_us_; }
  /// The time of one run on a warm L2, once known.
  double rough_us = 0;

 private:
  std::string config_;
  double estimate_us_;
  LoadedKernels kernels_;
  LoadedLaunch launch_, launch_of_asked_;
  SharedWorkspace& workspace_;
};

}  // namespace attnforge
