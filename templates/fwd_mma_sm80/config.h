// config.h - the axes of fwd_mma_sm80. Compiled by g++ (search, launch) and by NVRTC (kernel), so
// that both take the sizes of shared memory and the validity of a config from the same lines.
#pragma once

#include "base.cuh"
#include "params_fwd.h"

namespace attnforge {

struct FwdMmaSm80Config {
  // Fixed by the problem.
  int dtype;  // of q, k, v and o: kFp16 or kBf16
  int head_dim;
  int head_dim_v;
  int right_bound;  // 1: a row does not see all keys to its right (causal, window_right)
  int left_bound;   // 1: nor all keys to its left (window_left)
  int softcap;      // 1: scores are capped
  int lse;          // 1: lse is written
  int alignment;    // bytes of pointers and strides: 4, 8 or 16
  // Searched.
  int block_m;    // query rows a thread block
  int num_warps;  // each has block_m / num_warps rows, a multiple of 16
  int block_n;    // keys in a tile of shared memory
  int step_n;     // keys in one softmax step; divides block_n
  int stages;     // tiles of K, and of V, in shared memory
  int q_in_regs;  // 0: Q is read from shared memory in every step; 1: once; 2: once, and K and V
                  // then take its memory
  int blocks_per_sm;  // resident blocks that registers are to leave room for
  int pack_gqa;  // query heads of a K/V head in one query tile, as rows next to each other; 1: none
  int head_group_mb;  // heads are walked in groups of this many MB of K and V; 0: one head after
                      // another

  ATTNFORGE_HOST_DEVICE constexpr int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_HOST_DEVICE constexpr int warp_m() const { return block_m / num_warps; }
  ATTNFORGE_HOST_DEVICE constexpr int row_fragments() const { return warp_m() / 16; }
  ATTNFORGE_HOST_DEVICE constexpr int qk_chunks() const {
    return round_up(head_dim, 16) / 8;
  }  // 16-byte chunks of a row
  ATTNFORGE_HOST_DEVICE constexpr int v_chunks() const { return head_dim_v / 8; }
  ATTNFORGE_HOST_DEVICE constexpr int q_bytes() const { return block_m * qk_chunks() * 16; }
  ATTNFORGE_HOST_DEVICE constexpr int k_bytes() const { return block_n * qk_chunks() * 16; }
  ATTNFORGE_HOST_DEVICE constexpr int v_bytes() const { return block_n * v_chunks() * 16; }
  // Q, then the K tiles, then the V tiles; each a multiple of 128 bytes.
  ATTNFORGE_HOST_DEVICE constexpr int k_begin() const { return q_in_regs == 2 ? 0 : q_bytes(); }
  ATTNFORGE_HOST_DEVICE constexpr int v_begin() const { return k_begin() + stages * k_bytes(); }
  ATTNFORGE_HOST_DEVICE constexpr int smem_bytes() const {
    const int ring_end = v_begin() + stages * v_bytes();
    return ring_end > q_bytes() ? ring_end : q_bytes();
  }
  /// What the main loop keeps in registers, a thread; ptxas finds room for the rest or spills.
  ATTNFORGE_HOST_DEVICE constexpr int planned_registers() const {
    const int output = row_fragments() * head_dim_v / 2;
    const int scores = row_fragments() * step_n / 2;
    const int query = q_in_regs ? row_fragments() * qk_chunks() * 2 : row_fragments() * 4;
    return output + scores + query + 4 * row_fragments() + 8;
  }
  ATTNFORGE_HOST_DEVICE constexpr bool valid() const {
    return (dtype == kFp16 || dtype == kBf16) && block_m % (16 * num_warps) == 0 &&
           num_warps >= 2 && block_n % step_n == 0 && step_n % 16 == 0 && stages >= 1 &&
           block_m % pack_gqa == 0 && (stages > 1 || step_n == block_n) && alignment >= 4;
  }
};

struct FwdMmaSm80Params {
  FwdParams fwd;    // first: bind_fwd() writes to it
  TileOrder order;  // a head is a K/V head when heads are packed
};

}  // namespace attnforge
