// wgmma.cuh - asynchronous matrix products of a warpgroup (PTX ISA, "wgmma").
#pragma once

#include "base.cuh"

namespace attnforge {

/// The products of one shape: d (64 x kN, fp32) = a (64 x 16) * b (16 x kN), added to d if
/// `accumulate`. The generated source defines the shapes that it needs
/// (templates/hopper/wgmma_text.cpp): an asm statement must name all kN / 2 registers of d.
/// Fragments of d and a lie as those of mma.m16n8k16 (mma_sync.cuh), warp w having rows 16 w to 16
/// w + 15. b is given by a descriptor of shared memory:
///   smem_smem(d, a, b, accumulate)         both K-major: scores, Q in shared memory
///   regs_smem(d, a0..a3, b, accumulate)    b K-major: scores, Q in registers
///   regs_smem_mn(d, a0..a3, b)             b MN-major, always accumulates: outputs
template <int kDtype, int kN>
struct Wgmma;

/// Descriptor of a matrix in shared memory whose rows are in column chunks of kSwizzle bytes (128,
/// 64 or 32), swizzled as TMA does. K-major: kGroup is the distance of groups of 8 rows, kChunk is
/// not used. MN-major: kGroup is the distance of groups of 8 along k, kChunk that of column chunks.
/// The mask matters: in a cluster the window of shared memory of block 1 starts at 1 << 24.
template <int kSwizzle, int kChunk, int kGroup>
ATTNFORGE_DEVICE u64 smem_descriptor(u32 address) {
  constexpr u64 kMode = kSwizzle == 128 ? 1 : kSwizzle == 64 ? 2 : 3;
  return u64((address & 0x3ffff) >> 4) | u64(kChunk >> 4) << 16 | u64(kGroup >> 4) << 32 |
         kMode << 62;
}

/// Before the first product, and after registers of d or a were written.
ATTNFORGE_DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
ATTNFORGE_DEVICE void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Waits until at most kPending committed groups are unfinished.
template <int kPending>
ATTNFORGE_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// Keeps the compiler from moving reads or writes of registers across this point: it does not know
/// that a product works on them until its wait.
template <int kRows, int kColumns>
ATTNFORGE_DEVICE void pin(float (&r)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) asm volatile("" : "+f"(r[i][j])::"memory");
}
template <int kRows, int kColumns>
ATTNFORGE_DEVICE void pin(u32 (&r)[kRows][kColumns]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j) asm volatile("" : "+r"(r[i][j])::"memory");
}

}  // namespace attnforge
