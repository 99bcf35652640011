// tensor_map.h - TensorMapSpec and Tensor to CUtensorMap.
#pragma once

#include <cstddef>

#include "attnforge/plan.h"
#include "generator/launch.h"

namespace attnforge {

inline constexpr std::size_t kTensorMapBytes = 128;

/// The tensor of a run that a map is of.
const Tensor& tensor_of(const Tensors& tensors, TensorMapSpec::Operand operand);

/// Whether its rows are those of keys; else of queries.
bool is_of_keys(TensorMapSpec::Operand operand);

/// Writes the map of the tensor that `spec` names to `to`, 128 bytes. No allocation, no call to the
/// GPU. Throws Error(kInvalidArgument) for a tensor that TMA cannot address: pointers and strides
/// must be multiples of 16 bytes, strides not negative and below 2^40 bytes.
void encode_tensor_map(const TensorMapSpec& spec, const TensorMapSizes& sizes,
                       const Tensors& tensors, std::byte* to);

}  // namespace attnforge
