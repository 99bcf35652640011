// tensor_map.h - TensorMapSpec and Tensor to CUtensorMap.
#pragma once

#include <cstddef>

#include "attnforge/plan.h"
#include "generator/launch.h"

namespace attnforge {

inline constexpr std::size_t kTensorMapBytes = 128;

/// Writes the map of the tensor that `spec` names to `to`, 128 bytes. No allocation, no call to the
/// GPU. Throws Error(kInvalidArgument) for a tensor that TMA cannot address: pointers and strides
/// must be multiples of 16 bytes, strides not negative and below 2^40 bytes.
void encode_tensor_map(const TensorMapSpec& spec, const TensorMapSizes& sizes,
                       const Tensors& tensors, std::byte* to);

}  // namespace attnforge
