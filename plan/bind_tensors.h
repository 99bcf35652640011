// bind_tensors.h - pointers to contiguous tensors with the strides of the problem's layout; host or
// device memory.
#pragma once

#include <cstddef>

#include "attnforge/plan.h"

namespace attnforge {

/// For kPackedQkv, `k` and `v` are not looked at: both lie in `q`.
inline Tensors bind_contiguous(const Problem& problem, void* q, void* k, void* v, void* o,
                               float* lse) {
  Tensors tensors = contiguous_tensors(problem);
  if (problem.layout == Layout::kPackedQkv) {
    const std::int64_t head_bytes = std::int64_t{problem.head_dim} * size_bytes(problem.dtype_q);
    k = static_cast<std::byte*>(q) + problem.num_heads_q * head_bytes;
    v = static_cast<std::byte*>(q) + (problem.num_heads_q + problem.num_heads_kv) * head_bytes;
  }
  tensors.q.data = q;
  tensors.k.data = k;
  tensors.v.data = v;
  tensors.o.data = o;
  tensors.lse = problem.lse ? lse : nullptr;
  return tensors;
}

}  // namespace attnforge
