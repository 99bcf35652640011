// kernel.cuh - merges attention of the same queries to several parts of the keys, wherever these
// lie: cascades, ring attention, shared prefixes.
#pragma once

#include "ops/merge_states/config.h"
#include "parts/splits/merge_row.cuh"
#include "parts/splits/params.h"
#include "tile/elements.cuh"

namespace attnforge {

template <MergeStatesConfig kConfig>
struct MergeStates {
  /// A row of all parts.
  struct Parts {
    const MergeParams& p;
    int sequence, head, row, count;

    ATTNFORGE_DEVICE const char* o(int i) const { return row_of<kConfig.dtype>(p.parts[i]); }
    ATTNFORGE_DEVICE float lse(int i) const { return *lse_of(p.parts[i]); }

    template <int kElement>
    ATTNFORGE_DEVICE char* row_of(const StateRef& state) const {
      const TensorRef& o = state.o;
      const i64 at = sequence * o.stride_batch + row * o.stride_row + head * o.stride_head;
      return static_cast<char*>(o.data) + at * element_bytes(kElement);
    }
    ATTNFORGE_DEVICE float* lse_of(const StateRef& state) const {
      return state.lse + sequence * state.lse_stride_batch + head * state.lse_stride_head + row;
    }
  };

  ATTNFORGE_DEVICE static void run(const MergeParams& p) {
    const int warps = p.row_warps;
    const i64 row = i64(blockIdx.x) * (MergeShape::kWarps / warps) + int(threadIdx.x) / 32 / warps;
    const i64 of_all_heads = row / p.seqlen;
    const int sequence = int(of_all_heads / p.num_heads);
    const Parts parts{p, sequence, int(of_all_heads - i64(sequence) * p.num_heads),
                      int(row - of_all_heads * p.seqlen), p.count};
    MergeRow<kConfig.dtype, kConfig.alignment, kConfig.head_dim>::run(
        parts, sequence < p.batch, warps, [](float&) { return 1.0f; },
        [&](int column, const float(&x)[4]) {
          char* const to = parts.template row_of<kConfig.dtype_o>(p.result) +
                           column * element_bytes(kConfig.dtype_o);
          store_4<kConfig.dtype_o, kConfig.alignment>(to, x[0], x[1], x[2], x[3]);
        },
        [&](float lse) {
          if (kConfig.lse) *parts.lse_of(p.result) = lse;
        });
  }
};

}  // namespace attnforge
