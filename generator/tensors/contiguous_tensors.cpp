// contiguous_tensors.cpp - the strides of tensors without gaps.
#include "attnforge/plan.h"
#include "generator/parts/part.h"
#include "generator/tensors/stored_rows.h"

namespace attnforge {

Tensors contiguous_tensors(const Problem& p) {
  const StoredRows rows = stored_rows(p);
  const auto tensor = [&](std::int64_t seqlen, std::int64_t num_heads, std::int64_t head_dim) {
    const bool by_heads = p.layout == Layout::kBhsd;
    return Tensor{.stride_batch = seqlen * num_heads * head_dim,
                  .stride_row = by_heads ? head_dim : num_heads * head_dim,
                  .stride_head = by_heads ? seqlen * head_dim : head_dim};
  };
  Tensors tensors;
  if (p.layout == Layout::kPackedQkv) {
    tensors.q = tensors.k = tensors.v = tensor(rows.q, p.num_heads_q + 2 * p.num_heads_kv,
                                               p.head_dim);
  } else {
    tensors.q = tensor(rows.q, p.num_heads_q, p.head_dim);
    tensors.k = tensor(rows.kv, p.num_heads_kv, p.head_dim);
    tensors.v = tensor(rows.kv, p.num_heads_kv, p.head_dim_v);
  }
  tensors.o = tensor(rows.q, p.num_heads_q, p.head_dim_v);
  tensors.lse.stride_batch = p.num_heads_q * rows.q;
  tensors.lse.stride_head = rows.q;
  for_each_part<&ProblemPart::lay_out>(p, p, tensors);
  return tensors;
}

}  // namespace attnforge
