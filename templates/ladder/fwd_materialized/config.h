// config.h - the axes of fwd_materialized and the argument of its kernels.
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

struct FwdMaterializedConfig : Shape {
  int block_m;          // query rows in a tile of both products
  int block_n;          // keys in a tile of the scores
  int num_warps;        // of a block of the products
  int stages;           // slices of a product in shared memory; 1 for fp32
  int softmax_threads;  // a block of the softmax, which takes one row

  ATTNFORGE_CONSTEXPR bool tensor_cores() const { return dtype != kFp32; }
  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  /// Columns of V and of the output in a tile of the second product.
  ATTNFORGE_CONSTEXPR int block_v() const {
    return head_dim_v < 128 ? round_up(head_dim_v, tensor_cores() ? 16 : 32) : 128;
  }
  /// Both products go over their depth, the head dim or the keys, in slices of this many elements:
  /// 128 bytes of a row for the tensor cores, 16 elements of fp32.
  ATTNFORGE_CONSTEXPR int slice() const { return tensor_cores() ? 64 : 16; }
  /// A slice of q or p, then one of k (its rows are keys) or of v (its rows are the depth).
  ATTNFORGE_CONSTEXPR int slice_bytes(int columns) const {
    return (block_m + columns) * slice() * element_bytes(dtype);
  }
  ATTNFORGE_CONSTEXPR int scores_smem_bytes() const { return stages * slice_bytes(block_n); }
  ATTNFORGE_CONSTEXPR int output_smem_bytes() const { return stages * slice_bytes(block_v()); }
  /// Accumulators of a thread; the larger product's.
  ATTNFORGE_CONSTEXPR int accumulators() const {
    return block_m * (block_n > block_v() ? block_n : block_v()) / num_threads();
  }
  /// Resident blocks of a product, for the compiler: few enough that it need not spill.
  ATTNFORGE_CONSTEXPR int blocks_per_sm() const {
    const int registers = accumulators() + 136 < 255 ? accumulators() + 136 : 255;
    return 65536 / (num_threads() * registers);
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    const bool split_fits = tensor_cores() ? block_m % (16 * num_warps) == 0
                                           : stages == 1 && block_m % (num_threads() / 16) == 0;
    return split_fits && block_n % 64 == 0 && stages >= 1 && softmax_threads % 32 == 0 &&
           softmax_threads >= 32 && alignment >= 4;
  }
};

struct FwdMaterializedParams {
  FwdParams fwd;
  // In the workspace:
  float* scores;    // [heads of all sequences][seqlen_q][pitch], scaled, capped and masked; the
                    // softmax leaves a row's probabilities, of the dtype, where the row begins
  float* row_sums;  // [heads of all sequences][seqlen_q], of those probabilities
  i64 pitch;        // floats in a row of scores: seqlen_kv rounded up to block_n
};

}  // namespace attnforge
