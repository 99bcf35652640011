#include "plan/c/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "attnforge/error.h"
#include "generator/problem/fields.h"
#include "plan/c/struct.h"

namespace attnforge {
namespace {

// Enum values go out as they are.
static_assert(static_cast<int>(Progress::Phase::kCompile) == 0 &&
              static_cast<int>(Progress::Phase::kFinal) == 3);

Tensor tensor(const attnforge_tensor& c) {
  return {c.data, c.stride_batch, c.stride_row, c.stride_head};
}
Rows rows(const attnforge_rows& c) { return {c.data, c.stride_batch, c.stride_head}; }

/// A part that is there; its defaults are zeros.
template <class Part>
Part part(const Part* given, std::string_view name) {
  return read_struct(given, Part{}, name);
}

}  // namespace

Tensors from_c(const attnforge_tensors* given, std::span<AttentionState> parts) {
  static constexpr attnforge_tensors kDefaults = ATTNFORGE_TENSORS_INIT;
  const attnforge_tensors c = read_struct(given, kDefaults, "tensors", kFirstTensorsBytes);
  Tensors tensors{.q = tensor(c.q),
                  .k = tensor(c.k),
                  .v = tensor(c.v),
                  .o = tensor(c.o),
                  .lse = rows(c.lse),
                  .code_arguments = c.code_arguments,
                  .sinks = c.sinks};
  if (c.rope != nullptr) {
    const attnforge_rope rope = part(c.rope, "tensors.rope");
    tensors.rope = {rope.cos, rope.sin, rope.rows, rope.offset};
  }
  if (c.lengths != nullptr) {
    const attnforge_lengths lengths = part(c.lengths, "tensors.lengths");
    tensors.lengths = {lengths.q, lengths.kv, lengths.tokens_q, lengths.tokens_kv};
  }
  if (c.block_mask != nullptr) {
    const attnforge_block_mask_lists lists = part(c.block_mask, "tensors.block_mask");
    tensors.block_mask = {lists.row_begin, lists.columns, lists.bits, lists.bit_blocks};
  }
  if (c.pages != nullptr) {
    const attnforge_pages pages = part(c.pages, "tensors.pages");
    tensors.pages = {pages.table, pages.stride_batch, pages.num_pages};
  }
  if (c.kv_scales != nullptr) {
    const attnforge_kv_scales of = part(c.kv_scales, "tensors.kv_scales");
    const auto scales = [](const attnforge_tensor& t) {
      return ScaleTensor{static_cast<const float*>(t.data), t.stride_batch, t.stride_row,
                         t.stride_head};
    };
    tensors.k_scale = scales(of.k), tensors.v_scale = scales(of.v);
  }
  if (c.gradients != nullptr) {
    const attnforge_gradients g = part(c.gradients, "tensors.gradients");
    tensors.gradients = {.dout = tensor(g.dout),
                         .dq = tensor(g.dq),
                         .dk = tensor(g.dk),
                         .dv = tensor(g.dv),
                         .dlse = rows(g.dlse),
                         .dsinks = g.dsinks};
  }
  if (c.parts != nullptr && !parts.empty()) {
    std::transform(c.parts, c.parts + parts.size(), parts.begin(), [](const attnforge_state& part) {
      return AttentionState{tensor(part.o), rows(part.lse)};
    });
    tensors.parts = parts.data();
  }
  return tensors;
}

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

DType dtype_named(std::string_view name, const char* word) {
  if (const auto dtype = dtype_named(or_empty(word))) return *dtype;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is \"{}\"; it must be {}", name, or_empty(word),
                          find_field("q")->word.allowed));
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
