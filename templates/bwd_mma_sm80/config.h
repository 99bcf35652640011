// config.h - the axes of bwd_mma_sm80, what they make valid, and the sizes of shared memory.
#pragma once

#include "backward/dq_tile.cuh"
#include "backward/params.h"
#include "shape.h"

namespace attnforge {

/// Values of BwdMmaSm80Config::dq.
inline constexpr int kDqAdded = 0;      // added up in fp32, in any order
inline constexpr int kDqOwnKernel = 2;  // by a kernel of its own

/// The kernel that makes dQ alone: a block has query rows and walks over their keys. Derived, not
/// searched: what fits 99 KB and 255 registers.
struct BwdMmaSm80DqConfig : Shape {
  static constexpr int stages = 2, num_warps = 4, blocks_per_sm = 1;

  ATTNFORGE_CONSTEXPR int widest() const { return head_dim > head_dim_v ? head_dim : head_dim_v; }
  ATTNFORGE_CONSTEXPR int row_fragments() const { return head_dim <= 128 ? 2 : 1; }
  ATTNFORGE_CONSTEXPR int block_m() const { return 16 * row_fragments() * num_warps; }
  /// With dargs scores are kept until dS is there, and the text is compiled for each of a lane's.
  ATTNFORGE_CONSTEXPR int block_n() const {
    if (dargs) return widest() <= 64 ? 32 : 16;
    return widest() <= 64 ? 64 : widest() <= 128 ? 32 : 16;
  }
  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return chunks_of(dtype, round_up(head_dim, 16)); }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return chunks_of(dtype, round_up(head_dim_v, 16)); }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return block_m() * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int dout_bytes() const { return block_m() * v_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int k_bytes() const { return block_n() * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return block_n() * v_chunks() * 16; }
  // Q, dO, the tiles of K, those of V; each a multiple of 128 bytes.
  ATTNFORGE_CONSTEXPR int dout_begin() const { return q_bytes(); }
  ATTNFORGE_CONSTEXPR int k_begin() const { return dout_begin() + dout_bytes(); }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_begin() + stages * k_bytes(); }
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return v_begin() + stages * v_bytes(); }
};

struct BwdMmaSm80Config : Shape {
  int block_m;    // query rows in a tile of shared memory
  int block_n;    // keys of a block
  int num_warps;  // they share the keys, each has a multiple of 16
  int roles;      // 1: a warp has dK and dV of its keys; 2: two warps have the same keys, one has
                  // the scores and dV, the other dK; 4: two warps have each of these, with half of
                  // a step's scores and half of the columns
  int step_m;     // query rows in one step of scores; divides block_m
  int stages;     // tiles of Q, and of dO, in shared memory
  int ds_stages;  // tiles of dS: with 2 the products of dQ come a tile later, without a barrier
  int keys_in_regs;   // 1: K as the operand of scores, with roles = 2 V too, is read once
  int dq;             // how dQ is made: kDqAdded or kDqOwnKernel
  int dq_vector;      // floats that are added at once: 4 from sm_90 on, else 1
  int blocks_per_sm;  // resident blocks for which registers must suffice

  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR int key_warps() const { return num_warps / roles; }
  ATTNFORGE_CONSTEXPR int warp_n() const { return block_n / key_warps(); }
  ATTNFORGE_CONSTEXPR int key_fragments() const { return warp_n() / 16; }
  /// Warps that share one gradient of the same keys.
  ATTNFORGE_CONSTEXPR int halves() const { return roles == 4 ? 2 : 1; }
  /// Query rows that a warp has scores of in a step.
  ATTNFORGE_CONSTEXPR int warp_m() const { return step_m / halves(); }
  // 16-byte chunks of a row that take part in products.
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return chunks_of(dtype, round_up(head_dim, 16)); }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return chunks_of(dtype, round_up(head_dim_v, 16)); }
  ATTNFORGE_CONSTEXPR int steps() const { return block_m / step_m; }
  // Two warps with the same keys meet at named barriers, 1 to 15, where the one with dV arrives and
  // goes on. A barrier counts arrivals and not who arrives: before it is arrived at again the other
  // must have left it. So steps take turns at two barriers where there are as many, and the
  // first warp waits for the other before it comes round. Tiles have a barrier of all between them.
  ATTNFORGE_CONSTEXPR int hand_overs() const { return 2 * key_warps() <= 15 ? 2 : 1; }
  ATTNFORGE_CONSTEXPR int hand_over(int step) const { return step % hand_overs(); }
  ATTNFORGE_CONSTEXPR bool waits_for_other(int step) const {
    return step + 1 < steps() && hand_over(step) + 1 == hand_overs();
  }
  // Four warps with the same keys have two barriers for each half of P, which two others want, one
  // for each of dS, and one at a step's end.
  static constexpr int kBarriersOfFour = 7;
  ATTNFORGE_CONSTEXPR int named_barriers() const {
    return roles == 4 ? kBarriersOfFour * key_warps() : roles == 2 ? hand_overs() * key_warps() : 0;
  }
  ATTNFORGE_CONSTEXPR bool makes_dq() const { return dq != kDqOwnKernel; }
  /// Whether a tile of dS, or of what it is made of, passes through shared memory.
  ATTNFORGE_CONSTEXPR bool has_ds() const { return makes_dq() || roles != 1; }
  ATTNFORGE_CONSTEXPR BwdMmaSm80DqConfig own_dq() const { return {Shape(*this)}; }

  /// Warps along the rows of a dQ tile: of those that divide it the number that has the least to
  /// read and to multiply.
  ATTNFORGE_CONSTEXPR int dq_row_warps() const {
    int best = 1, least = 1 << 30;
    for (int rows = 1; rows <= num_warps; rows *= 2) {
      if (num_warps % rows != 0 || block_m % (16 * rows) != 0) continue;
      const int a = block_m / 16 / rows, b = ceil_div(qk_chunks() / 2, num_warps / rows);
      const int cost = a * b * 2 + a + b;
      if (cost < least) least = cost, best = rows;
    }
    return best;
  }
  // A warp's fragments of dQ: of 16 rows, and of 16 columns.
  ATTNFORGE_CONSTEXPR int dq_rows() const { return block_m / 16 / dq_row_warps(); }
  ATTNFORGE_CONSTEXPR int dq_columns() const {
    return ceil_div(qk_chunks() / 2, num_warps / dq_row_warps());
  }

  ATTNFORGE_CONSTEXPR int k_bytes() const { return block_n * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return block_n * v_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return block_m * qk_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int dout_bytes() const { return block_m * v_chunks() * 16; }
  ATTNFORGE_CONSTEXPR int ds_bytes() const {
    return has_ds() ? bytes_of(dtype, block_n * block_m) : 0;
  }
  /// Four roles have a tile for P, an operand of two warps.
  ATTNFORGE_CONSTEXPR int p_bytes() const { return roles == 4 ? ds_bytes() : 0; }
  /// What dP - delta is multiplied with goes from one role to another where dS will lie, lane by
  /// lane: of bf16 as it is for dV, of fp16 in fp32, since probabilities of long rows are too small
  /// for fp16.
  ATTNFORGE_CONSTEXPR bool fp32_factors() const { return roles != 1 && dtype == kFp16; }
  /// Half of fp32 has no place there.
  ATTNFORGE_CONSTEXPR int beside_ds_bytes() const { return fp32_factors() ? ds_bytes() : 0; }
  /// lse_log2 and delta of a tile's rows.
  ATTNFORGE_CONSTEXPR int rows_bytes() const { return block_m * 8; }
  // K, V, the tiles of Q, of dO, of dS, P, what has no place in dS, and what is known of rows; each
  // a multiple of 128 bytes.
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_bytes(); }
  ATTNFORGE_CONSTEXPR int q_begin() const { return v_begin() + v_bytes(); }
  ATTNFORGE_CONSTEXPR int dout_begin() const { return q_begin() + stages * q_bytes(); }
  ATTNFORGE_CONSTEXPR int ds_begin() const { return dout_begin() + stages * dout_bytes(); }
  ATTNFORGE_CONSTEXPR int p_begin() const { return ds_begin() + ds_stages * ds_bytes(); }
  ATTNFORGE_CONSTEXPR int beside_ds_begin() const { return p_begin() + p_bytes(); }
  ATTNFORGE_CONSTEXPR int rows_begin() const { return beside_ds_begin() + beside_ds_bytes(); }
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return rows_begin() + stages * rows_bytes(); }

  /// Registers of a thread that the main loop keeps; ptxas finds some for the rest or spills.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    const int columns = roles == 1 ? head_dim + head_dim_v
                                   : (head_dim > head_dim_v ? head_dim : head_dim_v);
    const int sums = key_fragments() * columns / 2 / halves();
    const int operands = key_fragments() * (keys_in_regs ? qk_chunks() * 2 : 4);
    return sums + (step_registers() > dq_registers() ? step_registers() : dq_registers()) +
           operands + 8;
  }
  /// Registers among these for a step of scores and for a product of dQ, which take turns.
  ATTNFORGE_CONSTEXPR int step_registers() const {
    return key_fragments() * warp_m() / 2 * (roles == 1 ? 2 : 1);
  }
  ATTNFORGE_CONSTEXPR int dq_registers() const {
    return makes_dq() ? dq_rows() * (dq_columns() * 8 + 4) : 0;
  }
  /// Whether four roles can share them: 32 columns in turn, and 16 queries.
  ATTNFORGE_CONSTEXPR bool in_halves() const {
    return head_dim % 64 == 0 && head_dim_v % 64 == 0 && step_m % 32 == 0;
  }
  ATTNFORGE_CONSTEXPR bool warps_share_evenly() const {
    return (roles == 1 || roles == 2 || roles == 4) && next_power_of_two(num_warps) == num_warps &&
           num_warps >= roles && num_warps >= 2 && num_warps <= 16 && named_barriers() <= 15 &&
           (roles != 4 || in_halves()) && block_n % (16 * key_warps()) == 0;
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return (dtype == kFp16 || dtype == kBf16) && warps_share_evenly() && block_m % step_m == 0 &&
           step_m % 16 == 0 && (step_m == block_m || next_power_of_two(step_m) == step_m) &&
           stages >= 1 && stages <= 4 &&
           (ds_stages == 1 || (ds_stages == 2 && stages >= 2 && makes_dq())) && alignment >= 4 &&
           ((dq == kDqAdded && !dargs) || dq == kDqOwnKernel) && (dq_vector == 1 || dq_vector == 4);
  }
};

/// Where the sums of a tile of dQ lie, for backward/step_dq: element c[i] of all lanes in the mma
/// accumulators of 16 rows by 8 columns, one accumulator after another, rows of them first to last.
template <BwdMmaSm80Config C>
struct BwdMmaSm80DqTile {
  static constexpr int kRows = C.block_m, kColumns = round_up(C.head_dim, 16);
  static constexpr int kLaneFloats = C.dq_vector;  // that a lane adds at once
  static constexpr DqQuad kQuad = kLaneFloats == 4 ? DqQuad{{0, 0, 8, 8}, {0, 1, 0, 1}}
                                                   : DqQuad{{0, 0, 0, 0}, {0, 2, 4, 6}};
  static constexpr int kNeighbours = 8;

  /// In floats, from the first of the tile.
  ATTNFORGE_CONSTEXPR static int offset(int row, int column) {
    const int lane = row % 8 * 4 + column % 8 / 2, i = row % 16 / 8 * 2 + column % 2;
    return fragment(row / 16, column / 8) + (kLaneFloats == 4 ? lane * 4 + i : i * 32 + lane);
  }
  /// Where an accumulator's first element lies.
  ATTNFORGE_CONSTEXPR static int fragment(int row_fragment, int column_fragment) {
    return (row_fragment * (kColumns / 8) + column_fragment) * 128;
  }
};

/// The argument of both kernels.
struct BwdMmaSm80Params : BwdParams {
  BwdScratch scratch;
  TileOrder order;  // of key tiles, a head is a K/V head; of the kernel of dQ: of query tiles
};

}  // namespace attnforge
