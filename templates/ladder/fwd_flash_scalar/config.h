// config.h - the axes of fwd_flash_scalar. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "shape.h"

namespace attnforge {

struct FwdFlashScalarConfig : Shape {
  int lanes_per_row;  // lanes that share a query row; lane l has elements l, l + lanes_per_row, ...
                      // At least 2: a lane alone would have neighbours, and the compiler wide loads
  int num_warps;
  int block_n;  // keys in a tile of shared memory
  int step_n;   // keys between two looks at the maximum; divides block_n

  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR int block_m() const { return num_threads() / lanes_per_row; }
  /// Elements of q, and of o, that a lane holds.
  ATTNFORGE_CONSTEXPR int qk_elements() const { return head_dim / lanes_per_row; }
  ATTNFORGE_CONSTEXPR int v_elements() const { return head_dim_v / lanes_per_row; }
  /// A tile of K, then one of V, both as fp32.
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return 4 * block_n * (head_dim + head_dim_v); }
  /// Registers of a thread that the main loop keeps, and some for addresses and operands.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    return qk_elements() + v_elements() + step_n + 40;
  }
  /// Resident blocks, for the compiler: with registers for the loads of a tile, that are in
  /// flight together, so that it need not spill.
  ATTNFORGE_CONSTEXPR int blocks_per_sm() const {
    const int blocks = 65536 / (round_up(planned_registers() + 32, 8) * num_threads());
    return blocks < 1 ? 1 : blocks;
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return lanes_per_row >= 2 && lanes_per_row <= 32 && 32 % lanes_per_row == 0 &&
           head_dim % lanes_per_row == 0 && head_dim_v % lanes_per_row == 0 && num_warps >= 1 &&
           step_n >= 1 && block_n % step_n == 0;
  }
};

}  // namespace attnforge
