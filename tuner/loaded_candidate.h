// loaded_candidate.h - a candidate's code on the GPU, ready to run.
#pragma once

#include <string>

#include "generator/candidates.h"
#include "runtime/loaded_launch.h"
#include "tuner/compile_pool.h"
#include "tuner/shared_workspace.h"

namespace attnforge {

class LoadedCandidate {
 public:
  /// Loads what the candidate's launch needs and has `workspace`, which must outlive it, grow to
  /// what it needs. Throws Error(kCuda).
  LoadedCandidate(const Candidate& candidate, const Problem& problem, const DeviceFacts& device,
                  Compiled&& compiled, SharedWorkspace& workspace);

  /// Enqueues one run. Throws Error(kCuda).
  void run(const Tensors& tensors, CUstream stream) const {
    launch_.run(tensors, workspace_.memory(), stream);
  }

  const std::string& config() const { return config_; }
  double estimate_us() const { return estimate_us_; }
  const Compiled& compiled() const { return compiled_; }
  /// The time of one run on a warm L2, once known.
  double rough_us = 0;

 private:
  std::string config_;
  double estimate_us_;
  Compiled compiled_;
  LoadedKernels kernels_;
  LoadedLaunch launch_;
  SharedWorkspace& workspace_;
};

}  // namespace attnforge
