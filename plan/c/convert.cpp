#include "plan/c/convert.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "attnforge/error.h"
#include "generator/problem/fields.h"
#include "plan/c/struct.h"

namespace attnforge {
namespace {

// Enum values go out as they are.
static_assert(static_cast<int>(Progress::Phase::kCompile) == 0 &&
              static_cast<int>(Progress::Phase::kFinal) == 3);

/// A struct of the C API as the library's, which has the same members in the same order.
template <class To, class From>
To same(const From& from) {
  static_assert(sizeof(To) == sizeof(From) && std::is_trivially_copyable_v<To>);
  return std::bit_cast<To>(from);
}

/// Reads a part that is there. Its members after struct_size, by default zeros, are those of `to`.
template <class Part, class To>
void read_part(const Part* given, std::string_view name, To& to) {
  constexpr std::size_t kFirst = sizeof(std::uint64_t);
  static_assert(sizeof(Part) == kFirst + sizeof(To) && std::is_trivially_copyable_v<To>);
  if (given == nullptr) return;
  const Part part = read_struct(given, Part{}, name);
  std::memcpy(&to, reinterpret_cast<const std::byte*>(&part) + kFirst, sizeof(To));
}

}  // namespace

Tensors from_c(const attnforge_tensors* given, std::span<AttentionState> parts) {
  static constexpr attnforge_tensors kDefaults = ATTNFORGE_TENSORS_INIT;
  const attnforge_tensors c = read_struct(given, kDefaults, "tensors", kFirstTensorsBytes);
  Tensors tensors{.q = same<Tensor>(c.q),
                  .k = same<Tensor>(c.k),
                  .v = same<Tensor>(c.v),
                  .o = same<Tensor>(c.o),
                  .lse = same<Rows>(c.lse)};
  read_part(c.rope, "tensors.rope", tensors.rope);
  read_part(c.lengths, "tensors.lengths", tensors.lengths);
  read_part(c.block_mask, "tensors.block_mask", tensors.block_mask);
  read_part(c.pages, "tensors.pages", tensors.pages);
  read_part(c.gradients, "tensors.gradients", tensors.gradients);
  read_part(c.cache, "tensors.cache", tensors.cache);
  struct {
    ScaleTensor k, v, q;
  } scales;
  read_part(c.kv_scales, "tensors.kv_scales", scales);
  tensors.k_scale = scales.k, tensors.v_scale = scales.v, tensors.q_scale = scales.q;
  // What is an address in both ends both.
  constexpr std::size_t kBytes = sizeof(c) - offsetof(attnforge_tensors, code_arguments);
  static_assert(sizeof(tensors) - offsetof(Tensors, code_arguments) == kBytes);
  std::memcpy(&tensors.code_arguments, &c.code_arguments, kBytes);
  if (c.parts != nullptr && !parts.empty()) {
    std::transform(c.parts, c.parts + parts.size(), parts.begin(),
                   same<AttentionState, attnforge_state>);
    tensors.parts = parts.data();
  }
  return tensors;
}

Tensor from_c(const attnforge_tensor& tensor) { return same<Tensor>(tensor); }
Rows from_c(const attnforge_rows& rows) { return same<Rows>(rows); }

Problem with_sizes(Problem problem, const attnforge_sizes* given, std::string_view name) {
  static constexpr attnforge_sizes kDefaults = ATTNFORGE_SIZES_INIT;
  const attnforge_sizes sizes = read_struct(given, kDefaults, name);
  if (problem.mask_batch != 1) problem.mask_batch = sizes.batch;
  problem.batch = sizes.batch;
  problem.seqlen_q = sizes.seqlen_q;
  problem.seqlen_kv = sizes.seqlen_kv;
  problem.tokens_q = sizes.tokens_q;
  problem.tokens_kv = sizes.tokens_kv;
  return problem;
}

ProgressFunction progress_from_c(attnforge_progress_function callback, void* user, bool* stop) {
  if (callback == nullptr) return {};
  return [callback, user, stop](const Progress& progress) {
    const attnforge_progress c{.struct_size = sizeof(attnforge_progress),
                               .phase = static_cast<std::int32_t>(progress.phase),
                               .done = progress.done,
                               .total = progress.total,
                               .failed = progress.failed,
                               .best_us = progress.best_us,
                               .default_us = progress.default_us,
                               .elapsed_s = progress.elapsed_s,
                               .remaining_s = progress.remaining_s,
                               .best_config = progress.best_config.c_str()};
    if (callback(user, &c) != 0 && stop != nullptr) *stop = true;
  };
}

}  // namespace attnforge
