// tensor_check.h - what is wrong with a tensor of a run, in words.
#pragma once

#include <cstdint>
#include <string_view>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/text/throw_error.h"

namespace attnforge {

inline std::uintptr_t address_bits(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}
/// The bits of an address and strides in bytes, of which an aligned tensor has no low ones.
inline std::uintptr_t alignment_bits(const Tensor& tensor, DType dtype) {
  const std::int64_t strides = tensor.stride_batch | tensor.stride_row | tensor.stride_head;
  return address_bits(tensor.data) |
         static_cast<std::uintptr_t>(strides) * static_cast<std::uintptr_t>(bytes_of(dtype, 1));
}
/// Whether there are floats or integers.
inline bool words_good(const void* words) {
  return words != nullptr && address_bits(words) % 4 == 0;
}

/// Throws Error(kInvalidArgument).
template <class... Values>
[[noreturn]] void refuse_tensors(fmt::format_string<Values...> format, Values&&... values) {
  throw_error(ErrorCode::kInvalidArgument, format, std::forward<Values>(values)...);
}

/// Throws Error(kInvalidArgument) unless a tensor of `batch` sequences or pages, of seqlen rows
/// each, is there and aligned as the problem says.
void check_tensor(std::string_view name, const Tensor& tensor, DType dtype, std::int64_t num_heads,
                  std::int64_t batch, std::int64_t seqlen, const Problem& problem);

/// Throws Error(kInvalidArgument) where `pointer` is null, saying so and then `or_else`, or is no
/// multiple of alignment_bytes.
void check_address(std::string_view name, const void* pointer, std::uintptr_t alignment_bytes,
                   std::string_view or_else);
/// Checks the alignment of a pointer that may be null.
void check_alignment(std::string_view name, const void* pointer, std::uintptr_t alignment_bytes);

}  // namespace attnforge
