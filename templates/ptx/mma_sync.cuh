// mma_sync.cuh - warp-wide matrix multiply-add on registers (PTX ISA, "Matrix fragments for mma").
#pragma once

#include "ptx/mma_fragment.cuh"

namespace attnforge {

/// What c begins with is `start`, and c is an operand of `kind`. Not volatile: without side
/// effects, so it may be scheduled freely.
#define ATTNFORGE_MMA(form, start, kind, ...)                                                \
  asm("mma.sync.aligned." form " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {" start "};" \
      : kind(c[0]), kind(c[1]), kind(c[2]), kind(c[3])                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)__VA_OPT__(, ) __VA_ARGS__)

/// c (16 x 8, fp32) += a (16 x 16) * b (16 x 8).
template <int kDtype>
ATTNFORGE_DEVICE void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "mma_m16n8k16 takes fp16 or bf16");
  if constexpr (kDtype == kBf16)
    ATTNFORGE_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "%0, %1, %2, %3", "+f");
  else
    ATTNFORGE_MMA("m16n8k16.row.col.f32.f16.f16.f32", "%0, %1, %2, %3", "+f");
}

/// c = a * b: the accumulator starts at zero without a register being cleared.
template <int kDtype>
ATTNFORGE_DEVICE void mma_m16n8k16_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "mma_m16n8k16 takes fp16 or bf16");
  if constexpr (kDtype == kBf16)
    ATTNFORGE_MMA("m16n8k16.row.col.f32.bf16.bf16.f32", "%10, %10, %10, %10", "=f", "f"(0.0f));
  else
    ATTNFORGE_MMA("m16n8k16.row.col.f32.f16.f16.f32", "%10, %10, %10, %10", "=f", "f"(0.0f));
}

/// c (16 x 8, fp32) += a (16 x 8) * b (8 x 8) of TF32: fp32 words whose 13 low bits are ignored.
/// Registers of a: {k 0-3: row, row + 8, k 4-7: row, row + 8} with k = lane % 4 and 4 more; of b:
/// the same k, column lane / 4. Sums are cut off, not rounded, to 24 bits.
ATTNFORGE_DEVICE void mma_m16n8k8_tf32(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  ATTNFORGE_MMA("m16n8k8.row.col.f32.tf32.tf32.f32", "%0, %1, %2, %3", "+f");
}

/// c (16 x 8, int32) += a (16 x 32) * b (32 x 8) of int8: four neighbours along k in a word, in the
/// places of two fp16. kFirst: c = a * b.
template <bool kFirst>
ATTNFORGE_DEVICE void mma_m16n8k32_int8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  if constexpr (kFirst)
    ATTNFORGE_MMA("m16n8k32.row.col.s32.s8.s8.s32", "%10, %10, %10, %10", "=r", "r"(0));
  else
    ATTNFORGE_MMA("m16n8k32.row.col.s32.s8.s8.s32", "%0, %1, %2, %3", "+r");
}
#undef ATTNFORGE_MMA

}  // namespace attnforge
