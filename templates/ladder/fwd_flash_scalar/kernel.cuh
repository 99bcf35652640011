// kernel.cuh - FlashAttention as textbooks write it (Milakov and Gimelshein 2018; Dao et al. 2022)
// on CUDA cores: K and V pass through shared memory tile by tile, each query row is a few lanes,
// and every load moves one element. No score leaves the registers: memory is O(seqlen). What
// bounds it is shared memory: one load for every multiply-add.
#pragma once

#include "ladder/fwd_flash_scalar/config.h"
#include "ladder/of_shape.cuh"
#include "pieces/fixed_lengths.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/tile_order.cuh"
#include "tile/unrolled.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

template <FwdFlashScalarConfig C>
struct FwdFlashScalar {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  static constexpr int kLanes = C.lanes_per_row;

  struct SharedMemory {
    float k[C.block_n][C.head_dim];
    float v[C.block_n][C.head_dim_v];
  };

  /// Rows first_key to first_key + block_n of a tensor, one element a thread at a time; rows past
  /// the end of the sequence are zeros.
  template <int kColumns>
  ATTNFORGE_DEVICE static void load_tile(float (&tile)[C.block_n][kColumns], const char* head,
                                         i64 stride_row, int first_key, int seqlen_kv) {
    for (int i = threadIdx.x; i < C.block_n * kColumns; i += C.num_threads()) {
      const int row = i / kColumns, d = i % kColumns;
      const i64 at = (first_key + row) * stride_row + d;
      tile[row][d] = first_key + row < seqlen_kv
                         ? load_1<C.dtype>(head + at * element_bytes(C.dtype))
                         : 0.0f;
    }
  }

  /// The sum over the lanes of a row, in all of them.
  ATTNFORGE_DEVICE static float row_sum_of(float x) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      x += __shfl_xor_sync(~0u, x, distance);
    return x;
  }

  ATTNFORGE_DEVICE static void run(const FwdTiledParams& params) {
    extern __shared__ __align__(16) u8 shared_memory[];
    SharedMemory& smem = *reinterpret_cast<SharedMemory*>(shared_memory);
    const FwdParams& p = params.fwd;
    const TilePlace place = place_tile(params.order, int(blockIdx.x));
    const int batch = place.head / p.num_heads_q, head = place.head % p.num_heads_q;
    const FixedLengths lengths(params, batch);
    const int kv_head = head / (p.num_heads_q / p.num_heads_kv);
    const char* k_head = head_pointer<C.dtype>(p.k, batch, kv_head);
    const char* v_head = head_pointer<C.dtype>(p.v, batch, kv_head);
    const int lane = int(threadIdx.x) % kLanes;
    const int first_row = place.m_block * C.block_m();
    const int query = first_row + int(threadIdx.x) / kLanes;
    const int last_row = min(first_row + C.block_m(), p.seqlen_q) - 1;

    // ---- 1. This lane's part of a query row; a row past the end computes zeros ----
    float q[C.qk_elements()], o[C.v_elements()];
    const char* q_row = head_pointer<C.dtype>(p.q, batch, head) +
                        query * p.q.stride_row * element_bytes(C.dtype);
#pragma unroll
    for (int i = 0; i < C.qk_elements(); ++i) {
      const int d = lane + i * kLanes;
      q[i] = query < p.seqlen_q ? load_1<C.dtype>(q_row + d * element_bytes(C.dtype)) : 0.0f;
    }
    fill(o, 0.0f);
    OnlineRow softmax;
    const float scale_log2 = p.softmax_scale * 1.4426950408889634f;
    const ScoreOf<C> score(p);
    const VisibleKeys visible = VisibleKeys::of_row(p, lengths, query);

    const auto walk = WalkOf<C>::of_queries(p, lengths, C.block_n, first_row, last_row);
    for (int i = 0; i < walk.count(); ++i) {
      const int n = walk.tile(i);
      // ---- 2. A tile of K and V to shared memory, as fp32 ----
      __syncthreads();  // all warps are done with the tile before
      load_tile(smem.k, k_head, p.k.stride_row, n * C.block_n, p.seqlen_kv);
      load_tile(smem.v, v_head, p.v.stride_row, n * C.block_n, p.seqlen_kv);
      __syncthreads();
      const bool is_masked = walk.masked(i);

#pragma unroll 1
      for (int first = 0; first < C.block_n; first += C.step_n) {
        // ---- 3. Scores of step_n keys ----
        float s[C.step_n];
#pragma unroll
        for (int j = 0; j < C.step_n; ++j) {
          s[j] = 0.0f;
          unrolled<C.qk_elements()>(
              [&](int i) { s[j] = fmaf(q[i], smem.k[first + j][lane + i * kLanes], s[j]); });
          s[j] = score(row_sum_of(s[j]));
          if (is_masked) s[j] = masked_score<C>(s[j], n * C.block_n + first + j, visible);
        }

        // ---- 4. Probabilities; what was summed before is rescaled to the new maximum ----
        float top = s[0];
#pragma unroll
        for (int j = 1; j < C.step_n; ++j) top = fmaxf(top, s[j]);
        const float rescale = softmax.raise_max(top, scale_log2);
        unrolled<C.v_elements()>([&](int i) { o[i] *= rescale; });
        unrolled<C.step_n>([&](int j) { s[j] = softmax.probability(s[j], scale_log2); });

        // ---- 5. Output ----
        unrolled<C.step_n, C.v_elements()>(
            [&](int j, int i) { o[i] = fmaf(s[j], smem.v[first + j][lane + i * kLanes], o[i]); });
      }
    }

    // ---- 6. Division by the sum, store ----
    if (query >= p.seqlen_q) return;
    const float inverse = softmax.inverse_sum(softmax.row_sum);
    char* o_row = head_pointer<C.dtype>(p.o, batch, head) +
                  query * p.o.stride_row * element_bytes(C.dtype);
    unrolled<C.v_elements()>([&](int i) {
      store_1<C.dtype>(o_row + (lane + i * kLanes) * element_bytes(C.dtype), o[i] * inverse);
    });
    if (C.lse && lane == 0) {
      p.lse[batch * p.lse_stride_batch + head * p.lse_stride_head + query] = softmax.lse(
          softmax.row_sum, p.softmax_scale);
    }
  }
};

}  // namespace attnforge
