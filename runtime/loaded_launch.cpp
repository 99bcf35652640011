#include "runtime/loaded_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "attnforge/error.h"
#include "generator/overrides.h"
#include "runtime/bind_arguments.h"

namespace attnforge {
namespace {

template <class Kernels>
auto find(Kernels& kernels, const std::string& name) {
  return std::find_if(kernels.begin(), kernels.end(),
                      [&](const auto& kernel) { return kernel.first == name; });
}

}  // namespace

LoadedKernels::LoadedKernels(std::span<const std::byte> image, const Source& source,
                             const Launch& launch) {
  for (const LaunchStep& step : launch.steps) {
    if (find(kernels_, step.kernel) != kernels_.end()) continue;
    int smem_bytes = 0;
    for (const LaunchStep& other : launch.steps) {
      if (other.kernel == step.kernel) smem_bytes = std::max(smem_bytes, other.smem_bytes);
    }
    kernels_.emplace_back(step.kernel,
                          Kernel::load(image, symbol_of(step.kernel, source), smem_bytes));
  }
}

const Kernel& LoadedKernels::at(const std::string& name) const {
  const auto found = find(kernels_, name);
  ATTNFORGE_ASSERT(found != kernels_.end(),
                   "a launch uses only kernels that were loaded for its bucket");
  return found->second;
}

LoadedLaunch::LoadedLaunch(Launch launch, const LoadedKernels& kernels)
    : workspace_bytes_(launch.workspace_bytes), counted_steps_(attnforge::counted_steps(launch)) {
  steps_.reserve(launch.steps.size());
  for (LaunchStep& step : launch.steps) {
    ATTNFORGE_ASSERT(step.params.size() <= kMaxParamsBytes,
                     "a kernel's argument fits into the stack buffer of a run");
    ATTNFORGE_ASSERT(!step.overlaps_previous || !steps_.empty(),
                     "the first step overlaps with nothing: the run before may still read what it "
                     "writes");
    const Kernel& kernel = kernels.at(step.kernel);
    steps_.push_back({&kernel, std::move(step)});
  }
}

void LoadedLaunch::run(const Tensors& tensors, const RunMemory& memory, CUstream stream) const {
  alignas(64) std::array<std::byte, kMaxParamsBytes> buffer;
  for (const Step& step : steps_) {
    const std::span<std::byte> params(buffer.data(), step.launch.params.size());
    bind_arguments(step.launch, tensors, memory, params);
    step.kernel->launch(step.launch, params, stream);
  }
}

}  // namespace attnforge
