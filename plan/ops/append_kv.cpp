// append_kv.cpp - append_kv(): a problem of the sizes and the alignment, its plan, a run.
#include "attnforge/append_kv.h"

#include <algorithm>

namespace attnforge {
namespace {

/// Low bits of its address and of all strides in bytes that are read.
std::uintptr_t bits_of(const Tensor& t, DType dtype, std::int64_t batch, std::int64_t rows,
                       std::int64_t heads) {
  const auto stride = [&](std::int64_t elements, std::int64_t count) {
    return static_cast<std::uintptr_t>(count <= 1 ? 0 : bytes_of(dtype, elements));
  };
  return reinterpret_cast<std::uintptr_t>(t.data) | stride(t.stride_batch, batch) |
         stride(t.stride_row, rows) | stride(t.stride_head, heads);
}

/// What all rows begin at multiples of.
int alignment_of(const AppendSizes& s, const AppendTensors& t, bool packed) {
  const std::int64_t batch = packed ? 1 : s.batch, rows = packed ? s.tokens : s.seqlen_new;
  const std::int64_t pages = s.page_size > 0 ? t.pages.num_pages : s.batch,
                     rows_of_page = s.page_size > 0 ? s.page_size : s.seqlen_kv;
  std::uintptr_t bits = 16;
  for (const Tensor* tensor : {&t.k, &t.v})
    bits |= bits_of(*tensor, s.dtype, batch, rows, s.num_heads_kv);
  for (const Tensor* tensor : {&t.k_cache, &t.v_cache})
    bits |= bits_of(*tensor, s.dtype, pages, rows_of_page, s.num_heads_kv);
  for (const Tensor* tensor : {&t.q, &t.rotated_q})
    if (s.num_heads_q > 0) bits |= bits_of(*tensor, s.dtype, batch, rows, s.num_heads_q);
  return static_cast<int>(
      std::max(static_cast<std::int64_t>(bits & (~bits + 1)), bytes_of(s.dtype, 1)));
}

Problem problem_of(const AppendSizes& s, const AppendTensors& t, bool packed) {
  Problem p;
  p.op = Op::kAppend;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = s.dtype;
  p.queries = s.num_heads_q > 0;
  p.lengths_after = t.used_kv_after != nullptr;
  p.alignment_bytes = alignment_of(s, t, packed);
  p.batch = s.batch;
  p.num_heads_kv = s.num_heads_kv;
  p.num_heads_q = p.queries ? s.num_heads_q : s.num_heads_kv;
  p.seqlen_q = packed ? s.tokens : s.seqlen_new;
  p.seqlen_kv = s.seqlen_kv;
  p.head_dim = s.head_dim;
  p.head_dim_v = s.head_dim_v;
  if (packed) p.lengths = Lengths::kPacked, p.tokens_q = p.tokens_kv = s.tokens;
  p.page_size = s.page_size;
  p.rope = s.rope;
  p.rope_dim = s.rope_dim;
  return p;
}

}  // namespace

void append_kv(const AppendSizes& sizes, const AppendTensors& tensors, Device& device, void* stream,
               bool allow_compile) {
  const bool packed = tensors.cu_seqlens != nullptr;
  make_plan(problem_of(sizes, tensors, packed), device, {.allow_compile = allow_compile})
      .run({.q = tensors.q,
            .k = tensors.k,
            .v = tensors.v,
            .o = tensors.rotated_q,
            .rope = tensors.rope,
            .lengths = {.q = tensors.cu_seqlens, .kv = tensors.used_kv},
            .pages = tensors.pages,
            .cache = {tensors.k_cache, tensors.v_cache, tensors.used_kv_after}},
           nullptr, stream);
}

}  // namespace attnforge
