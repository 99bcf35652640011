// ldmatrix.cuh - 8 x 8 matrices of 16-bit elements from shared memory to mma fragments (PTX ISA,
// "ldmatrix").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Four matrices; lane l gives the address of row l % 8 of matrix l / 8.
ATTNFORGE_DEVICE void ldmatrix_x4(u32 (&r)[4], u32 smem_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_address)
               : "memory");
}

/// ldmatrix_x4() with each matrix transposed.
ATTNFORGE_DEVICE void ldmatrix_x4_trans(u32 (&r)[4], u32 smem_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_address)
               : "memory");
}

/// Two matrices, each transposed; lanes 0 to 15 give the addresses.
ATTNFORGE_DEVICE void ldmatrix_x2_trans(u32& r0, u32& r1, u32 smem_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(smem_address)
               : "memory");
}

}  // namespace attnforge
