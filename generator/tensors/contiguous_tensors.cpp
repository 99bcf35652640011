// contiguous_tensors.cpp - the strides of tensors without gaps.
#include "attnforge/plan.h"
#include "generator/parts/part.h"
#include "generator/tensors/stored_rows.h"

namespace attnforge {

Tensors contiguous_tensors(const Problem& p) {
  const auto rows_of_heads = [](std::int64_t seqlen, std::int64_t num_heads,
                                std::int64_t head_dim) {
    return Tensor{.stride_batch = seqlen * num_heads * head_dim,
                  .stride_row = num_heads * head_dim,
                  .stride_head = head_dim};
  };
  const auto heads_of_rows = [](std::int64_t seqlen, std::int64_t num_heads,
                                std::int64_t head_dim) {
    return Tensor{.stride_batch = seqlen * num_heads * head_dim,
                  .stride_row = head_dim,
                  .stride_head = seqlen * head_dim};
  };
  const std::int64_t rows_q = stored_rows(p).q, rows_kv = stored_rows(p).kv;
  Tensors tensors;
  switch (p.layout) {
    case Layout::kBshd:
      tensors.q = rows_of_heads(rows_q, p.num_heads_q, p.head_dim);
      tensors.k = rows_of_heads(rows_kv, p.num_heads_kv, p.head_dim);
      tensors.v = rows_of_heads(rows_kv, p.num_heads_kv, p.head_dim_v);
      break;
    case Layout::kBhsd:
      tensors.q = heads_of_rows(rows_q, p.num_heads_q, p.head_dim);
      tensors.k = heads_of_rows(rows_kv, p.num_heads_kv, p.head_dim);
      tensors.v = heads_of_rows(rows_kv, p.num_heads_kv, p.head_dim_v);
      break;
    case Layout::kPackedQkv:
      tensors.q = tensors.k = tensors.v = rows_of_heads(rows_q, p.num_heads_q + 2 * p.num_heads_kv,
                                                        p.head_dim);
      break;
  }
  tensors.o = p.layout == Layout::kBhsd ? heads_of_rows(rows_q, p.num_heads_q, p.head_dim_v)
                                        : rows_of_heads(rows_q, p.num_heads_q, p.head_dim_v);
  tensors.lse.stride_batch = p.num_heads_q * rows_q;
  tensors.lse.stride_head = rows_q;
  for (const ProblemPart* part : problem_parts()) {
    if (part->lay_out != nullptr && part->in(p)) part->lay_out(p, tensors);
  }
  return tensors;
}

}  // namespace attnforge
