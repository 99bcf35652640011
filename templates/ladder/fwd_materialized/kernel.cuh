// kernel.cuh - attention as three operations on whole matrices, the way it was computed before
// FlashAttention: S = scale Q K^T, P = softmax(S), O = P V, each a kernel of its own. S and P are
// seqlen_q x seqlen_kv in global memory: O(L^2) bytes, which also bound the speed.
#pragma once

#include "ladder/fwd_materialized/config.h"
#include "ladder/fwd_materialized/product.cuh"
#include "ladder/of_shape.cuh"
#include "pieces/fixed_lengths.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/maximum.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

template <FwdMaterializedConfig C>
struct FwdMaterialized {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  static constexpr int kElementBytes = element_bytes(C.dtype);

  /// A tile of queries of one head.
  struct Queries {
    int batch, head, first, present;
    WalkOf<C> keys;  // the tiles of keys that some of them see; no others are computed or read

    ATTNFORGE_DEVICE Queries(const FwdMaterializedParams& params, int global_head, int m_block)
        : batch(global_head / params.fwd.num_heads_q),
          head(global_head % params.fwd.num_heads_q),
          first(m_block * C.block_m),
          present(min(C.block_m, params.fwd.seqlen_q - first)),
          keys(keys.of_queries(params.fwd, FixedLengths(params, batch), C.block_n, first,
                               first + present - 1)) {}
  };

  /// Where a query's row of scores, and then of probabilities, begins.
  ATTNFORGE_DEVICE static float* row_of_scores(const FwdMaterializedParams& params, int global_head,
                                               int query) {
    return params.scores + (i64(global_head) * params.fwd.seqlen_q + query) * params.pitch;
  }

  /// A tensor from row `row` and column `column` of a head on.
  ATTNFORGE_DEVICE static MatrixSource source(const TensorRef& tensor, int batch, int head, int row,
                                              int column, int rows, int columns) {
    return {head_pointer<C.dtype>(tensor, batch, head) +
                (row * tensor.stride_row + column) * kElementBytes,
            tensor.stride_row * kElementBytes, rows - row, (columns - column) / 8};
  }

  // ---- 1. S = softmax_scale Q K^T, capped and masked. A block a tile of S ----

  ATTNFORGE_DEVICE static void scores(const FwdMaterializedParams& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    const FwdParams& p = params.fwd;
    const int n_blocks = ceil_div(p.seqlen_kv, C.block_n),
              m_blocks = ceil_div(p.seqlen_q, C.block_m);
    const int n = int(blockIdx.x) % n_blocks, m = int(blockIdx.x) / n_blocks % m_blocks;
    const int global_head = int(blockIdx.x) / n_blocks / m_blocks;
    const Queries queries(params, global_head, m);
    if (n < queries.keys.begin || n >= queries.keys.end) return;
    const int kv_head = queries.head / (p.num_heads_q / p.num_heads_kv);

    Product<C, C.block_n, false> product;
    product.template run<C.alignment>(
        shared_memory,
        source(p.q, queries.batch, queries.head, queries.first, 0, p.seqlen_q, C.head_dim),
        source(p.k, queries.batch, kv_head, n * C.block_n, 0, p.seqlen_kv, C.head_dim),
        ceil_div(C.head_dim, C.slice()));

    const ScoreOf<C> score(p);
    const bool is_masked = !queries.keys.is_clear(n);
    const FixedLengths lengths(params, queries.batch);
    product.for_each_pair([&](int row, int column, float x, float y) {
      if (row >= queries.present) return;
      x = score(x) * p.softmax_scale, y = score(y) * p.softmax_scale;
      const int key = n * C.block_n + column;
      if (is_masked) {
        const VisibleKeys visible = VisibleKeys::of_row(p, lengths, queries.first + row);
        x = masked_score<C>(x, key, visible);
        y = masked_score<C>(y, key + 1, visible);
      }
      float* to = row_of_scores(params, global_head, queries.first + row) + key;
      *reinterpret_cast<float2*>(to) = make_float2(x, y);
    });
  }

  // ---- 2. P = exp(S - maximum), its sums, and lse. A block a row ----

  /// `x` of all threads combined, in all of them.
  template <class Operation>
  ATTNFORGE_DEVICE static float over_block(float x, const Operation& operation) {
    __shared__ float of_warps[C.softmax_threads / 32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      x = operation(x, __shfl_xor_sync(~0u, x, distance));
    __syncthreads();  // the last use of of_warps is over
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = of_warps[0];
    for (int w = 1; w < C.softmax_threads / 32; ++w) x = operation(x, of_warps[w]);
    return x;
  }

  /// Probabilities are left relative to the maximum, and the third step divides by their sum: in
  /// 16 bits a long row's normalised ones would be too small to be exact. They take the place of
  /// their scores; 16-bit ones fill the first half of the row.
  ATTNFORGE_DEVICE static void softmax(const FwdMaterializedParams& params) {
    constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
    const FwdParams& p = params.fwd;
    const int query = int(blockIdx.x) % p.seqlen_q, global_head = int(blockIdx.x) / p.seqlen_q;
    const Queries queries(params, global_head, query / C.block_m);
    const int begin = queries.keys.begin * C.block_n, end = queries.keys.end * C.block_n;
    float* s = row_of_scores(params, global_head, query);

    float row_max = kLowestFloat;
    for (int key = begin + int(threadIdx.x) * 4; key < end; key += C.softmax_threads * 4) {
      const float4 x = *reinterpret_cast<const float4*>(s + key);
      row_max = fmaxf(fmaxf(fmaxf(row_max, x.x), fmaxf(x.y, x.z)), x.w);
    }
    row_max = over_block(row_max, [](float a, float b) { return fmaxf(a, b); });

    float row_sum = 0.0f;
    for (int first = begin; first < end; first += C.softmax_threads * 4) {
      const int key = first + int(threadIdx.x) * 4;
      float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      if (key < end) {
        x = *reinterpret_cast<const float4*>(s + key);
        x.x = exp2_approx((x.x - row_max) * kLog2e), x.y = exp2_approx((x.y - row_max) * kLog2e);
        x.z = exp2_approx((x.z - row_max) * kLog2e), x.w = exp2_approx((x.w - row_max) * kLog2e);
        row_sum += (x.x + x.y) + (x.z + x.w);
      }
      __syncthreads();  // these scores are read: probabilities may lie in their place
      if (key < end) {
        store_4<C.dtype, 16>(reinterpret_cast<char*>(s) + i64(key) * kElementBytes, x.x, x.y, x.z,
                             x.w);
      }
    }
    row_sum = over_block(row_sum, [](float a, float b) { return a + b; });

    if (threadIdx.x != 0) return;
    params.row_sums[i64(global_head) * p.seqlen_q + query] = row_sum;
    if constexpr (C.lse) {
      p.lse[queries.batch * p.lse_stride_batch + queries.head * p.lse_stride_head +
            query] = row_sum == 0.0f ? negative_infinity()
                                     : fmaf(log2_approx(row_sum), kLn2, row_max);
    }
  }

  // ---- 3. O = P V, divided by the sums. A block a tile of O ----

  ATTNFORGE_DEVICE static void output(const FwdMaterializedParams& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    constexpr int kColumns = C.block_v(), kColumnBlocks = ceil_div(C.head_dim_v, kColumns);
    const FwdParams& p = params.fwd;
    const int m_blocks = ceil_div(p.seqlen_q, C.block_m);
    const int first_column = int(blockIdx.x) % kColumnBlocks * kColumns;
    const int m = int(blockIdx.x) / kColumnBlocks % m_blocks;
    const int global_head = int(blockIdx.x) / kColumnBlocks / m_blocks;
    const Queries queries(params, global_head, m);
    const int kv_head = queries.head / (p.num_heads_q / p.num_heads_kv);
    const int first_key = queries.keys.begin * C.block_n;
    const int keys = (queries.keys.end - queries.keys.begin) * C.block_n;
    const char* probabilities = reinterpret_cast<const char*>(
                                    row_of_scores(params, global_head, queries.first)) +
                                i64(first_key) * kElementBytes;

    Product<C, kColumns, true> product;
    product.template run<16>(
        shared_memory, {probabilities, params.pitch * 4, queries.present, keys / 8},
        source(p.v, queries.batch, kv_head, first_key, first_column, p.seqlen_kv, C.head_dim_v),
        keys / C.slice());

    char* o_head = head_pointer<C.dtype>(p.o, queries.batch, queries.head);
    const float* row_sums = params.row_sums + i64(global_head) * p.seqlen_q + queries.first;
    product.for_each_pair([&](int row, int column, float x, float y) {
      if (row >= queries.present || first_column + column >= C.head_dim_v) return;
      const float inverse = row_sums[row] == 0.0f ? 0.0f : reciprocal_approx(row_sums[row]);
      char* to = o_head +
                 ((queries.first + row) * p.o.stride_row + first_column + column) * kElementBytes;
      store_2<C.dtype>(to, x * inverse, y * inverse);
    });
  }
};

}  // namespace attnforge
