#include "tuner/loaded_candidate.h"

#include <algorithm>

#include "runtime/tensor_map.h"

namespace attnforge {

LoadedCandidate::LoadedCandidate(const Candidate& candidate, const Problem& problem,
                                 const DeviceFacts& device, Compiled&& compiled,
                                 SharedWorkspace& workspace)
    : family_(candidate.family),
      config_(to_string(candidate.config)),
      estimate_us_(candidate.estimate_us),
      compiled_(std::move(compiled)),
      launch_(candidate.family->launch(candidate.config, problem, device)),
      workspace_(workspace) {
  kernels_.reserve(launch_.steps.size());  // step_kernels_ points into it
  for (const LaunchStep& step : launch_.steps) {
    auto known = std::find_if(kernels_.begin(), kernels_.end(),
                              [&](const auto& kernel) { return kernel.first == step.kernel; });
    if (known == kernels_.end()) {
      int smem_bytes = 0;  // the most that any step of this symbol asks for
      for (const LaunchStep& other : launch_.steps) {
        if (other.kernel == step.kernel) smem_bytes = std::max(smem_bytes, other.smem_bytes);
      }
      kernels_.emplace_back(
          step.kernel, Kernel::load(compiled_.cubin.bytes, symbol_of(step.kernel, compiled_.source),
                                    smem_bytes));
      known = kernels_.end() - 1;
    }
    step_kernels_.push_back(&known->second);
    params_.emplace_back(step.params.size());
  }
  workspace_.reserve(launch_);
}

void LoadedCandidate::bind(const Tensors& tensors) {
  tensors_ = tensors;
  bound_memory_ = workspace_.memory();
  for (std::size_t i = 0; i < launch_.steps.size(); ++i) {
    bind_arguments(*family_, launch_.steps[i], tensors, bound_memory_, params_[i]);
  }
}

void LoadedCandidate::run(CUstream stream) {
  if (!(bound_memory_ == workspace_.memory())) bind(tensors_);  // another one made it larger
  for (std::size_t i = 0; i < launch_.steps.size(); ++i)
    step_kernels_[i]->launch(launch_.steps[i], params_[i], stream);
}

}  // namespace attnforge
