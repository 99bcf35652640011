// loaded_candidate.h - a candidate's code on the GPU, ready to run on one set of tensors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "generator/candidates.h"
#include "runtime/kernel.h"
#include "tuner/compile_pool.h"
#include "tuner/shared_workspace.h"

namespace attnforge {

class LoadedCandidate {
 public:
  /// Loads what the candidate's launch needs and has `workspace`, which must outlive it, grow to
  /// what it needs. Throws Error(kCuda).
  LoadedCandidate(const Candidate& candidate, const Problem& problem, const DeviceFacts& device,
                  Compiled&& compiled, SharedWorkspace& workspace);

  /// Fixes the tensors of the runs to come.
  void bind(const Tensors& tensors);
  /// Enqueues one run. Throws Error(kCuda).
  void run(CUstream stream);

  const std::string& config() const { return config_; }
  double estimate_us() const { return estimate_us_; }
  const Compiled& compiled() const { return compiled_; }
  /// Of one run on a warm L2, once known.
  double rough_us = 0;

 private:
  const Family* family_;
  std::string config_;
  double estimate_us_;
  Compiled compiled_;
  Launch launch_;
  std::vector<std::pair<std::string, Kernel>> kernels_;  // by symbol
  std::vector<const Kernel*> step_kernels_;
  std::vector<std::vector<std::byte>> params_;  // of each step
  SharedWorkspace& workspace_;
  Tensors tensors_;
  RunMemory bound_memory_;  // where it was at the last bind()
};

}  // namespace attnforge
