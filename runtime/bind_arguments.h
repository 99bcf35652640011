// bind_arguments.h - a kernel's argument with the pointers of one run.
#pragma once

#include <cstddef>
#include <span>

#include "attnforge/plan.h"
#include "generator/launch.h"

namespace attnforge {

/// Fills in the parts `step.args` of `params`, which are LaunchStep::params before, from the
/// tensors and the memory of a run. No allocation, no call to the GPU. Throws
/// Error(kInvalidArgument) for a tensor that TMA cannot address (runtime/tensor_map.h),
/// Error(kInternal) for counters that are not there and for parts outside of the argument.
void bind_arguments(const LaunchStep& step, const Tensors& tensors, const RunMemory& memory,
                    std::span<std::byte> params);

}  // namespace attnforge
