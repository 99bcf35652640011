// config.h - the axes of fwd_naive. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

struct FwdNaiveConfig : Shape {
  int block_m;      // query rows a thread block: 8, or 1 when there is only one
  int num_threads;  // a thread block; also the keys of a tile, one a thread

  ATTNFORGE_CONSTEXPR int num_warps() const { return num_threads / 32; }
  /// Resident blocks that leave a thread 168 registers or more: with fewer ptxas spills.
  ATTNFORGE_CONSTEXPR int blocks_per_sm() const { return 384 / num_threads; }
  /// Threads are split into groups that take every key_groups()th key of a tile times V; a thread
  /// of a group has columns_per_thread() columns of the output, threads_per_group() apart.
  ATTNFORGE_CONSTEXPR int key_groups() const {
    const int groups = num_threads / round_up(head_dim_v, 32);
    return groups < 1 ? 1 : groups;
  }
  ATTNFORGE_CONSTEXPR int threads_per_group() const { return num_threads / key_groups(); }
  ATTNFORGE_CONSTEXPR int columns_per_thread() const {
    return ceil_div(head_dim_v, threads_per_group());
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return head_dim % 8 == 0 && head_dim_v % 8 == 0 && (block_m == 1 || block_m % 4 == 0) &&
           num_threads >= 32 && num_threads <= 384 && num_threads % (32 * key_groups()) == 0 &&
           alignment >= element_bytes(dtype_k);
  }
};

struct FwdNaiveParams {
  FwdParams fwd;
  // With a list its rows alone are computed: those of entry i go to row i of sequence 0 in o and
  // lse. Entries block_m * j to block_m * j + block_m - 1 are of one sequence, in any order. Null:
  // every row goes to its own place.
  const ListedRow* rows;
  int num_rows;
};

}  // namespace attnforge
