// bind_arguments.h - a kernel's argument with the pointers of one run.
#pragma once

#include <cstddef>
#include <span>

#include "attnforge/plan.h"
#include "generator/launch.h"

namespace attnforge {

/// Fills in the parts `args` of `params`, which are LaunchStep::params before, from the tensors and
/// the memory of a run; `from_workspace` as in LaunchStep. No allocation, no call to the GPU.
/// Throws Error(kInvalidArgument) for a tensor that TMA cannot address (runtime/tensor_map.h),
/// Error(kInternal) for counters that are not there and for parts outside of the argument.
void bind_arguments(std::span<const ArgumentField> args,
                    std::span<const ScratchTensor> from_workspace, const Tensors& tensors,
                    const RunMemory& memory, std::span<std::byte> params);

}  // namespace attnforge
