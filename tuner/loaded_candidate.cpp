#include "tuner/loaded_candidate.h"

#include <utility>

namespace attnforge {

LoadedCandidate::LoadedCandidate(const Candidate& candidate, const Problem& problem,
                                 const DeviceFacts& device, Compiled&& compiled,
                                 SharedWorkspace& workspace)
    : config_(to_string(candidate.config)),
      estimate_us_(candidate.estimate_us),
      compiled_(std::move(compiled)),
      workspace_(workspace) {
  Launch launch = candidate.family->launch(candidate.config, problem, device);
  kernels_ = LoadedKernels(compiled_.cubin.bytes, compiled_.source, launch);
  workspace_.reserve(launch);
  launch_ = LoadedLaunch(launch, kernels_);
}

}  // namespace attnforge
