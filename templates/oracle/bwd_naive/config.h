// config.h - the axes of bwd_naive. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "backward/params.h"
#include "shape.h"

namespace attnforge {

struct BwdNaiveConfig : Shape {
  int num_threads;  // a thread block; also the rows of the other side that it takes at a time

  static constexpr int kRows = 8;  // of dq, or of dk and dv, a thread block

  ATTNFORGE_CONSTEXPR int num_warps() const { return num_threads / 32; }
  ATTNFORGE_CONSTEXPR int blocks_per_sm() const { return 384 / num_threads; }
  /// Bytes of a block's two rows of its own side, and of p and ds.
  ATTNFORGE_CONSTEXPR int smem_bytes() const {
    return kRows * (head_dim + head_dim_v + 2 * num_threads + 2) * int(sizeof(float));
  }
  /// That a thread adds up, of dk and dv: with more of them registers spill.
  ATTNFORGE_CONSTEXPR int columns_per_thread() const {
    return ceil_div(head_dim + head_dim_v, num_threads);
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return head_dim % 8 == 0 && head_dim_v % 8 == 0 && num_threads % 32 == 0 && num_threads >= 64 &&
           num_threads <= 384 && smem_bytes() <= 48 * 1024 && columns_per_thread() <= 8;
  }
};

/// With lists their rows alone are computed: those of entry i go to row i of sequence 0 in dq, or
/// in dk and dv. Entries kRows * j to kRows * j + kRows - 1 are of one sequence, in any order.
/// Without (null) every row goes to its own place. dsinks are sums over all rows in any case.
struct BwdNaiveParams : BwdParams {
  const ListedRow* queries;
  const ListedRow* keys;
  // For each row in [heads, rows], or null: the square root of the sum over the other side of ds^2,
  // ds^2 and p^2. Roundings of ds and p, one by one, are relative to these.
  float *dq_norms, *dk_norms, *dv_norms;
  float* dsink_norms;  // [num_heads_q] or null: the sum of the sizes of what dsinks are sums of
  int num_queries;     // of the list, or of a sequence
  int num_keys;
  int query_blocks;  // blocks before this one have rows of dq,
  int row_blocks;    // those before this one of dk and dv, and the others a head's sink; after
                     // these all rows of queries add to the gradients of arrays
};

}  // namespace attnforge
