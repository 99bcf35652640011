// bind_tensors.h - pointers to contiguous tensors with the strides of the problem's layout; host or
// device memory.
#pragma once

#include <cstddef>
#include <string>

#include "attnforge/error.h"
#include "attnforge/host_tensors.h"
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
  tensors.lse.data = problem.lse ? lse : nullptr;
  return tensors;
}

/// Rope's tables at `cos` and `sin`, which hold those of `host`. Throws Error(kInvalidArgument) if
/// they are not whole rows, or not as many.
inline void bind_rope_tables(const Problem& problem, const HostTensors& host, const void* cos,
                             const void* sin, Tensors& tensors) {
  if (problem.rope == Rope::kNone) return;
  const auto pairs = static_cast<std::size_t>(effective_rope_dim(problem) / 2);
  if (host.rope_cos.size() != host.rope_sin.size() || host.rope_cos.size() % pairs != 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "host tensors rope_cos and rope_sin have " + std::to_string(host.rope_cos.size()) +
                    " and " + std::to_string(host.rope_sin.size()) +
                    " elements; they must be of one size, rows of " + std::to_string(pairs));
  }
  tensors.rope.cos = static_cast<const float*>(cos);
  tensors.rope.sin = static_cast<const float*>(sin);
  tensors.rope.rows = static_cast<std::int64_t>(host.rope_cos.size() / pairs);
  tensors.rope.offset = host.rope_offset;
}

}  // namespace attnforge
