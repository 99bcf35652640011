// config.h - the axes of fwd_wmma, what they make valid, and the sizes of shared memory.
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

struct FwdWmmaConfig : Shape {
  int block_m;        // query rows a thread block
  int num_warps;      // each has block_m / num_warps rows, a multiple of 16
  int block_n;        // keys in a tile of shared memory
  int step_n;         // keys in one softmax step; divides block_n
  int stages;         // tiles of K, and of V, in shared memory
  int q_in_regs;      // 0: Q is read from shared memory in every step; 1: once
  int blocks_per_sm;  // resident blocks for which registers must suffice
  int head_group_mb;  // heads are walked in groups of this many MB of K and V; 0: one after another

  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR int warp_m() const { return block_m / num_warps; }
  ATTNFORGE_CONSTEXPR int row_fragments() const { return warp_m() / 16; }
  ATTNFORGE_CONSTEXPR int depth_steps() const { return ceil_div(head_dim, 16); }
  ATTNFORGE_CONSTEXPR int out_fragments() const { return ceil_div(head_dim_v, 16); }
  /// Pitches in chunks of 16 bytes. Odd: eight rows of a matrix then lie in different banks.
  ATTNFORGE_CONSTEXPR int qk_pitch() const { return 2 * depth_steps() + 1; }
  ATTNFORGE_CONSTEXPR int v_pitch() const { return 2 * out_fragments() + 1; }
  ATTNFORGE_CONSTEXPR int p_pitch() const { return step_n / 8 + 1; }
  /// fp32 elements between the rows of a warp's scratch fragment.
  ATTNFORGE_CONSTEXPR int scratch_pitch() const { return 20; }

  ATTNFORGE_CONSTEXPR int q_bytes() const { return block_m * qk_pitch() * 16; }
  ATTNFORGE_CONSTEXPR int k_bytes() const { return block_n * qk_pitch() * 16; }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return block_n * v_pitch() * 16; }
  /// Bytes of a warp: P of one step, or one fragment in fp32.
  ATTNFORGE_CONSTEXPR int warp_bytes() const {
    const int p = warp_m() * p_pitch() * 16, fragment = 16 * scratch_pitch() * 4;
    return round_up(p > fragment ? p : fragment, 128);
  }
  ATTNFORGE_CONSTEXPR int table_bytes() const { return 16 * 16 * 4; }
  // Q, the K tiles, the V tiles, the warps' own memory, the table of places.
  ATTNFORGE_CONSTEXPR int k_begin() const { return q_bytes(); }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_begin() + stages * k_bytes(); }
  ATTNFORGE_CONSTEXPR int warp_begin() const { return v_begin() + stages * v_bytes(); }
  ATTNFORGE_CONSTEXPR int table_begin() const { return warp_begin() + num_warps * warp_bytes(); }
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return table_begin() + table_bytes(); }
  /// Registers of a thread that the main loop keeps; ptxas finds some for the rest or spills.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    const int output = row_fragments() * out_fragments() * 8;
    const int scores = row_fragments() * step_n / 2;
    const int query = row_fragments() * 4 * (q_in_regs ? depth_steps() : 1);
    const int softmax = row_fragments() * 16;  // maxima and sums, an element each
    return output + scores + query + softmax + 8;
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return (dtype == kFp16 || dtype == kBf16) && block_m % (16 * num_warps) == 0 &&
           block_n % step_n == 0 && step_n % 16 == 0 && stages >= 1 && num_warps >= 2 &&
           (stages > 1 || step_n == block_n) && alignment >= 4;
  }
};

}  // namespace attnforge
