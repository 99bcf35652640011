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
/// Whether there are floats or integers.
inline bool words_good(const void* words) {
  return words != nullptr && address_bits(words) % 4 == 0;
}

/// What a stride is multiplied by to be in bits, and in whole blocks where these are multiples of
/// 8 times the alignment.
inline int stride_bits(DType dtype, int alignment) {
  return is_blocks(dtype) ? 8 * alignment / kBlockElements : format_of(dtype).bits;
}

/// Whether tensors are there and aligned as a problem says: a few operations for each.
class GoodTensors {
 public:
  void add(const Tensor& t, DType dtype) {
    present_ &= t.data != nullptr;
    bits_ |= 8 * address_bits(t.data) |
             static_cast<std::uintptr_t>(t.stride_batch | t.stride_row | t.stride_head) *
                 static_cast<std::uintptr_t>(format_of(dtype).bits);
  }
  bool all(const Problem& problem) const {
    return present_ && (bits_ & static_cast<std::uintptr_t>(8 * problem.alignment_bytes - 1)) == 0;
  }

 private:
  std::uintptr_t bits_ = 0;
  bool present_ = true;
};

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
