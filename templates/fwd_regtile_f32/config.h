// config.h - the axes of fwd_regtile_f32, what they make valid, the sizes of shared memory.
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

/// Values of the `math` field: how products are made of fp32 numbers.
inline constexpr int kMathFma = 0;     // fused multiply-adds of the CUDA cores
inline constexpr int kMath3xTf32 = 1;  // tensor cores, each product as three of TF32 numbers
inline constexpr int kMathTf32 = 2;    // tensor cores, inputs rounded to TF32

struct FwdRegtileF32Config : Shape {
  int math;     // kMathFma, kMath3xTf32 or kMathTf32
  int warp_m;   // query rows of a warp
  int warps_m;  // warps side by side along the queries
  int warps_n;  // warps with the same queries; each has its part of every tile's keys, and their
                // outputs are added in the end
  int warps_d;  // warps with the same queries and keys, each with its part of the output's columns
  int step_n;   // keys in one softmax step of a warp
  int steps;    // softmax steps of a warp in one tile
  int stages;   // tiles of K, and of V, in shared memory
  int q_in_regs;      // 1: Q is read from shared memory once, not in every step; tensor cores only
  int blocks_per_sm;  // resident blocks for which registers must suffice
  int pack_gqa;  // query heads of a K/V head in one query tile, as rows next to each other; 1: none
  int head_group_mb;  // heads are walked in groups of this many MB of K and V; 0: one head after
                      // another

  ATTNFORGE_CONSTEXPR int num_warps() const { return warps_m * warps_n * warps_d; }
  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps(); }
  ATTNFORGE_CONSTEXPR int block_m() const { return warp_m * warps_m; }
  ATTNFORGE_CONSTEXPR int warp_keys() const { return step_n * steps; }
  ATTNFORGE_CONSTEXPR int block_n() const { return warp_keys() * warps_n; }
  ATTNFORGE_CONSTEXPR int warp_columns() const { return head_dim_v / warps_d; }

  // Rows in shared memory are an odd number of 16-byte chunks apart: eight rows then lie in eight
  // different bank groups, and so do four rows of any parity with two chunks of each.
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return head_dim / 4 + 1; }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return head_dim_v / 4 + 1; }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return block_m() * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int k_bytes() const { return block_n() * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return block_n() * v_chunks() * 16; }

  /// Bytes between the keys of a warp's probabilities in shared memory (kMathFma): an odd number of
  /// chunks again.
  ATTNFORGE_CONSTEXPR int p_row_bytes() const { return warp_m * 4 + 16; }
  ATTNFORGE_CONSTEXPR int p_bytes() const { return math == kMathFma ? step_n * p_row_bytes() : 0; }
  // Q, the K tiles, the V tiles, the probabilities of each warp.
  ATTNFORGE_CONSTEXPR int k_begin() const { return q_bytes(); }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_begin() + stages * k_bytes(); }
  ATTNFORGE_CONSTEXPR int p_begin() const { return v_begin() + stages * v_bytes(); }
  /// Output columns that a thread keeps of each of its rows. kMathFma: some of the last are beyond
  /// the end.
  ATTNFORGE_CONSTEXPR int thread_columns() const {
    return math == kMathFma ? ceil_div(warp_columns(), 32) * 4 : warp_columns() / 4;
  }
  /// Tensor cores: whether the output is made 32 columns at a time; else 16, which takes fewer
  /// registers.
  ATTNFORGE_CONSTEXPR bool columns_by_4() const {
    return math != kMath3xTf32 || warp_m * warp_columns() < 16 * 160;
  }
  ATTNFORGE_CONSTEXPR int thread_rows() const { return math == kMathFma ? warp_m / 4 : warp_m / 8; }
  /// What a warp sends when the outputs of warps_n warps are added: takes the place of all
  /// else.
  ATTNFORGE_CONSTEXPR int partial_bytes() const {
    return thread_rows() * (thread_columns() + 2) * 128;
  }
  ATTNFORGE_CONSTEXPR int smem_bytes() const {
    const int tiles = p_begin() + num_warps() * p_bytes();
    const int partials = warps_n > 1 ? num_warps() / 2 * partial_bytes() : 0;
    return partials > tiles ? partials : tiles;
  }
  /// Registers of a thread that the main loop keeps; ptxas finds some for the rest or spills.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    const int output = thread_rows() * thread_columns();
    const int state = 3 * thread_rows() + 12;
    if (math == kMathFma) {
      const int scores = 2 * thread_rows() * step_n / 8;
      const int operands = 4 * thread_rows() + 16;
      return output + state + scores + operands;
    }
    const int fragments = warp_m / 16, scores = fragments * step_n / 2;
    const int parts = math == kMath3xTf32 ? 2 : 1;  // of every operand and score
    const int query = fragments * parts * (q_in_regs ? head_dim / 2 : 4);
    const int wide = columns_by_4() ? 4 : 2;
    const int added = math == kMath3xTf32 ? 4 * wide * fragments : 0;  // products to be added
    const int v = 2 * wide * (1 + parts);
    const int in_qk = (parts == 2 ? 3 : 1) * scores + query + 8 * parts;
    const int in_pv = parts * scores + added + v + (q_in_regs ? query : 0);
    return output + state + (in_qk > in_pv ? in_qk : in_pv);
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    const bool shapes = head_dim % 8 == 0 && head_dim_v % (8 * warps_d) == 0 && alignment >= 4;
    const bool counts = num_warps() >= 2 && num_warps() <= 16 && steps >= 1 && stages >= 1 &&
                        pack_gqa >= 1 && block_m() % pack_gqa == 0 && (stages > 1 || steps == 1) &&
                        (warps_n & (warps_n - 1)) == 0;
    const bool tile = math == kMathFma ? (warp_m == 8 || warp_m == 16 || warp_m == 32) &&
                                             step_n % 8 == 0 && !q_in_regs
                                       : warp_m % 16 == 0 && step_n % 16 == 0;
    return shapes && counts && tile;
  }
};

}  // namespace attnforge
