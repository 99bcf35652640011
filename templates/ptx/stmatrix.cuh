// stmatrix.cuh - 8 x 8 matrices of 16-bit elements from mma fragments to shared memory (PTX ISA,
// "stmatrix"), from sm_90 on.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Four matrices: two neighbours of a fragment's row are neighbours there. Lane l gives the address
/// of row l % 8 of matrix l / 8, 16 bytes.
ATTNFORGE_DEVICE void stmatrix_x4(u32 smem_address, const u32 (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}
/// Four matrices, each transposed: element {row, column} of a fragment goes to row `column` of its
/// matrix.
ATTNFORGE_DEVICE void stmatrix_x4_trans(u32 smem_address, const u32 (&r)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(smem_address),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
}

}  // namespace attnforge
