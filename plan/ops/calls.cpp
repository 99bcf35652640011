// calls.cpp - append_kv() and merge_states(): a problem of the sizes and of the alignment that
// tensors have, its plan, a run.
#include <fmt/format.h>

#include <algorithm>

#include "attnforge/append_kv.h"
#include "attnforge/error.h"
#include "attnforge/merge_states.h"

namespace attnforge {
namespace {

/// What all rows of tensors begin at multiples of.
class Alignment {
 public:
  /// Strides of dimensions of one element are not read.
  void add(const Tensor& t, DType dtype, std::int64_t batch, std::int64_t rows,
           std::int64_t heads) {
    const auto stride = [&](std::int64_t elements, std::int64_t count) {
      return static_cast<std::uintptr_t>(count <= 1 ? 0 : bytes_of(dtype, elements));
    };
    bits_ |= reinterpret_cast<std::uintptr_t>(t.data) | stride(t.stride_batch, batch) |
             stride(t.stride_row, rows) | stride(t.stride_head, heads);
    least_ = std::max(least_, static_cast<int>(bytes_of(dtype, 1)));
  }
  /// At least an element: whether these begin at multiples of their size is for the run to check.
  int bytes() const { return std::max(static_cast<int>(bits_ & (~bits_ + 1)), least_); }

 private:
  std::uintptr_t bits_ = 16;
  int least_ = 1;
};

int alignment_of(const AppendSizes& s, const AppendTensors& t, bool packed) {
  const std::int64_t batch = packed ? 1 : s.batch, rows = packed ? s.tokens : s.seqlen_new;
  const std::int64_t pages = s.page_size > 0 ? t.pages.num_pages : s.batch,
                     rows_of_page = s.page_size > 0 ? s.page_size : s.seqlen_kv;
  Alignment alignment;
  for (const Tensor* tensor : {&t.k, &t.v})
    alignment.add(*tensor, s.dtype, batch, rows, s.num_heads_kv);
  alignment.add(t.k_cache, s.dtype_k_cache.value_or(s.dtype), pages, rows_of_page, s.num_heads_kv);
  alignment.add(t.v_cache, s.dtype_v_cache.value_or(s.dtype), pages, rows_of_page, s.num_heads_kv);
  for (const Tensor* tensor : {&t.q, &t.rotated_q})
    if (s.num_heads_q > 0) alignment.add(*tensor, s.dtype, batch, rows, s.num_heads_q);
  return alignment.bytes();
}

/// That seqlen_q may be; of packed rows `tokens` says all.
constexpr std::int64_t kMostQueries = std::int64_t{1} << 27;

Problem problem_of(const AppendSizes& s, const AppendTensors& t, bool packed) {
  Problem p;
  p.op = Op::kAppend;
  p.dtype_q = p.dtype_o = s.dtype;
  p.dtype_k = s.dtype_k_cache.value_or(s.dtype);
  p.dtype_v = s.dtype_v_cache.value_or(s.dtype);
  p.kv_scale = s.kv_scale;
  p.kv_zero = s.kv_zero;
  p.queries = s.num_heads_q > 0;
  p.lengths_after = t.used_kv_after != nullptr;
  p.alignment_bytes = alignment_of(s, t, packed);
  p.batch = s.batch;
  p.num_heads_kv = s.num_heads_kv;
  p.num_heads_q = p.queries ? s.num_heads_q : s.num_heads_kv;
  p.seqlen_q = packed ? std::min(s.tokens, kMostQueries) : s.seqlen_new;
  p.seqlen_kv = s.seqlen_kv;
  p.head_dim = s.head_dim;
  p.head_dim_v = s.head_dim_v;
  if (packed) p.lengths = Lengths::kPacked, p.tokens_q = p.tokens_kv = s.tokens;
  p.page_size = s.page_size;
  p.rope = s.rope;
  p.rope_dim = s.rope_dim;
  return p;
}

Plan plan_of(const AppendSizes& sizes, const AppendTensors& tensors, Device& device,
             bool allow_compile) {
  return make_plan(problem_of(sizes, tensors, tensors.cu_seqlens != nullptr), device,
                   {.policy = Policy::kEstimate, .allow_compile = allow_compile});
}

}  // namespace

void prepare_append_kv(const AppendSizes& sizes, const AppendTensors& tensors, Device& device,
                       bool allow_compile) {
  plan_of(sizes, tensors, device, allow_compile);
}

void append_kv(const AppendSizes& sizes, const AppendTensors& tensors, Device& device, void* stream,
               bool allow_compile) {
  plan_of(sizes, tensors, device, allow_compile)
      .run({.q = tensors.q,
            .k = tensors.k,
            .v = tensors.v,
            .o = tensors.rotated_q,
            .rope = tensors.rope,
            .lengths = {.q = tensors.cu_seqlens, .kv = tensors.used_kv},
            .pages = tensors.pages,
            .cache = {tensors.k_cache, tensors.v_cache, tensors.used_kv_after},
            .k_scale = tensors.k_scale,
            .v_scale = tensors.v_scale},
           nullptr, stream);
}

void merge_states(const StateSizes& sizes, std::span<const AttentionState> parts,
                  const AttentionState& result, Device& device, void* stream, bool allow_compile) {
  if (parts.empty() || parts.size() > kMostMergedStates) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("merge_states got {} parts; it merges 1 to {}, and results can be "
                            "merged again",
                            parts.size(), kMostMergedStates));
  }
  Alignment alignment;
  const auto add = [&](const Tensor& o, DType dtype) {
    alignment.add(o, dtype, sizes.batch, sizes.seqlen, sizes.num_heads);
  };
  add(result.o, sizes.dtype_o);
  for (const AttentionState& part : parts) add(part.o, sizes.dtype);
  Problem problem;
  problem.op = Op::kMerge;
  problem.dtype_q = problem.dtype_k = problem.dtype_v = sizes.dtype;
  problem.dtype_o = sizes.dtype_o;
  problem.lse = result.lse.data != nullptr;
  problem.parts = static_cast<int>(parts.size());
  problem.alignment_bytes = alignment.bytes();
  problem.batch = sizes.batch;
  problem.num_heads_q = problem.num_heads_kv = sizes.num_heads;
  problem.seqlen_q = problem.seqlen_kv = sizes.seqlen;
  problem.head_dim = problem.head_dim_v = sizes.head_dim;
  make_plan(problem, device, {.policy = Policy::kEstimate, .allow_compile = allow_compile})
      .run({.o = result.o, .lse = result.lse, .parts = parts.data()}, nullptr, stream);
}

}  // namespace attnforge
