// tensor_map.h - the last step before a launch: a kernel's argument with the pointers and tensor
// maps of one run.
#pragma once

#include <cstddef>
#include <span>

#include "attnforge/plan.h"
#include "generator/family.h"
#include "generator/launch.h"

namespace attnforge {

/// family.bind(), and then the counters and the tensor maps that the step asks for. `params` has
/// the size of step.params. No allocation, no call to the GPU. Throws Error(kInvalidArgument) for a
/// tensor that TMA cannot address: pointers and strides must be multiples of 16 bytes, strides not
/// negative and below 2^40 bytes.
void bind_arguments(const Family& family, const LaunchStep& step, const Tensors& tensors,
                    const RunMemory& memory, std::span<std::byte> params);

}  // namespace attnforge
