// config.h - the axes of fwd_flash_vec. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "shape.h"

namespace attnforge {

struct FwdFlashVecConfig : Shape {
  int lanes_per_row;    // lanes that share a group of query rows; a lane has every lanes_per_row-th
                        // chunk of four elements
  int rows_per_thread;  // query rows of a group
  int num_warps;
  int block_n;        // keys in a tile of shared memory
  int keys_per_lane;  // probabilities that a lane makes in a step, of each of its rows

  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR int groups_per_warp() const { return 32 / lanes_per_row; }
  ATTNFORGE_CONSTEXPR int block_m() const {
    return num_warps * groups_per_warp() * rows_per_thread;
  }
  /// Keys between two looks at the maximum.
  ATTNFORGE_CONSTEXPR int step_n() const { return lanes_per_row * keys_per_lane; }
  /// Chunks of four elements that a lane has of a row; the last may lie after the head dim, where
  /// shared memory has zeros.
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return ceil_div(head_dim / 4, lanes_per_row); }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return ceil_div(head_dim_v / 4, lanes_per_row); }
  /// Floats in a row of a tile.
  ATTNFORGE_CONSTEXPR int qk_pitch() const { return 4 * qk_chunks() * lanes_per_row; }
  ATTNFORGE_CONSTEXPR int v_pitch() const { return 4 * v_chunks() * lanes_per_row; }
  /// Floats between the probabilities of two groups: a key more than a step has, so that the groups
  /// of a warp read from different banks.
  ATTNFORGE_CONSTEXPR int p_pitch() const { return (step_n() + 1) * rows_per_thread; }
  ATTNFORGE_CONSTEXPR int smem_bytes() const {
    return 4 * (block_n * (qk_pitch() + v_pitch()) + num_warps * groups_per_warp() * p_pitch());
  }
  /// Registers of a thread that the main loop keeps, and some for addresses and operands.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    return rows_per_thread * (4 * qk_chunks() + 4 * v_chunks() + step_n() + 4) + 36;
  }
  /// Resident blocks, for the compiler: with registers for loads that it has in flight together,
  /// so that it need not spill.
  ATTNFORGE_CONSTEXPR int blocks_per_sm() const {
    const int registers = planned_registers() + 32 < 128 ? 128 : planned_registers() + 32;
    const int blocks = 65536 / (round_up(registers, 8) * num_threads());
    return blocks < 1 ? 1 : blocks;
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return lanes_per_row >= 2 && lanes_per_row <= 32 && 32 % lanes_per_row == 0 &&
           (rows_per_thread == 1 || rows_per_thread == 2 || rows_per_thread % 4 == 0) &&
           num_warps >= 1 && keys_per_lane >= 1 && block_n % step_n() == 0 && alignment >= 2;
  }
};

}  // namespace attnforge
