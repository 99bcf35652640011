// wmma.cuh - warp-wide products of 16 x 16 matrices whose fragments are opaque (PTX ISA,
// "Warp-level matrix instructions: wmma"). Which element a register holds is not said anywhere;
// what is said is that fragments of one kind and type agree, so elementwise arithmetic on them is
// sound.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Matrix A or B, 16 x 16. fp16 has eight registers in PTX, which need not hold different elements.
template <int kDtype>
struct WmmaOperand {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "wmma multiplies fp16 or bf16");
  static constexpr int kRegisters = kDtype == kFp16 ? 8 : 4;
  u32 r[kRegisters];
};

/// Matrix C or D, 16 x 16, fp32: every element in one register of one lane.
struct WmmaAccumulator {
  float x[8];
};

enum class WmmaOperandKind { kARows, kBRows, kBColumns };

/// From shared memory, aligned to 32 bytes; `pitch` in elements, a multiple of 8: between rows, or
/// between columns for kBColumns.
template <WmmaOperandKind kKind, int kDtype>
ATTNFORGE_DEVICE void wmma_load(WmmaOperand<kDtype>& f, u32 smem_address, int pitch) {
#define ATTNFORGE_WMMA_LOAD_FP16(what)                                                 \
  asm volatile("wmma.load." what                                                       \
               ".m16n16k16.shared.f16 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], %9;"     \
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3]), "=r"(f.r[4]), \
                 "=r"(f.r[5]), "=r"(f.r[6]), "=r"(f.r[7])                              \
               : "r"(smem_address), "r"(pitch)                                         \
               : "memory")
#define ATTNFORGE_WMMA_LOAD_BF16(what)                                                \
  asm volatile("wmma.load." what ".m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;" \
               : "=r"(f.r[0]), "=r"(f.r[1]), "=r"(f.r[2]), "=r"(f.r[3])               \
               : "r"(smem_address), "r"(pitch)                                        \
               : "memory")
  if constexpr (kDtype == kFp16) {
    if constexpr (kKind == WmmaOperandKind::kARows) ATTNFORGE_WMMA_LOAD_FP16("a.sync.aligned.row");
    if constexpr (kKind == WmmaOperandKind::kBRows) ATTNFORGE_WMMA_LOAD_FP16("b.sync.aligned.row");
    if constexpr (kKind == WmmaOperandKind::kBColumns)
      ATTNFORGE_WMMA_LOAD_FP16("b.sync.aligned.col");
  } else {
    if constexpr (kKind == WmmaOperandKind::kARows) ATTNFORGE_WMMA_LOAD_BF16("a.sync.aligned.row");
    if constexpr (kKind == WmmaOperandKind::kBRows) ATTNFORGE_WMMA_LOAD_BF16("b.sync.aligned.row");
    if constexpr (kKind == WmmaOperandKind::kBColumns)
      ATTNFORGE_WMMA_LOAD_BF16("b.sync.aligned.col");
  }
#undef ATTNFORGE_WMMA_LOAD_FP16
#undef ATTNFORGE_WMMA_LOAD_BF16
}

/// c += a * b, b loaded as kKind says. Not volatile: without side effects.
template <WmmaOperandKind kKind, int kDtype>
ATTNFORGE_DEVICE void wmma_mma(WmmaAccumulator& c, const WmmaOperand<kDtype>& a,
                               const WmmaOperand<kDtype>& b) {
#define ATTNFORGE_WMMA_C                                                              \
  "+f"(c.x[0]), "+f"(c.x[1]), "+f"(c.x[2]), "+f"(c.x[3]), "+f"(c.x[4]), "+f"(c.x[5]), \
      "+f"(c.x[6]), "+f"(c.x[7])
#define ATTNFORGE_WMMA_MMA_FP16(layouts)                                                           \
  asm("wmma.mma.sync.aligned." layouts                                                             \
      ".m16n16k16.f32.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, "                                      \
      "{%8, %9, %10, %11, %12, %13, %14, %15}, {%16, %17, %18, %19, %20, %21, %22, %23}, "         \
      "{%0, %1, %2, %3, %4, %5, %6, %7};"                                                          \
      : ATTNFORGE_WMMA_C                                                                           \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(a.r[4]), "r"(a.r[5]), "r"(a.r[6]), \
        "r"(a.r[7]), "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), "r"(b.r[3]), "r"(b.r[4]), "r"(b.r[5]), \
        "r"(b.r[6]), "r"(b.r[7]))
#define ATTNFORGE_WMMA_MMA_BF16(layouts)                                                           \
  asm("wmma.mma.sync.aligned." layouts                                                             \
      ".m16n16k16.f32.bf16.bf16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9, %10, %11}, "        \
      "{%12, %13, %14, %15}, {%0, %1, %2, %3, %4, %5, %6, %7};"                                    \
      : ATTNFORGE_WMMA_C                                                                           \
      : "r"(a.r[0]), "r"(a.r[1]), "r"(a.r[2]), "r"(a.r[3]), "r"(b.r[0]), "r"(b.r[1]), "r"(b.r[2]), \
        "r"(b.r[3]))
  static_assert(kKind != WmmaOperandKind::kARows, "b is matrix B");
  if constexpr (kDtype == kFp16) {
    if constexpr (kKind == WmmaOperandKind::kBRows) {
      ATTNFORGE_WMMA_MMA_FP16("row.row");
    } else {
      ATTNFORGE_WMMA_MMA_FP16("row.col");
    }
  } else {
    if constexpr (kKind == WmmaOperandKind::kBRows) {
      ATTNFORGE_WMMA_MMA_BF16("row.row");
    } else {
      ATTNFORGE_WMMA_MMA_BF16("row.col");
    }
  }
#undef ATTNFORGE_WMMA_MMA_FP16
#undef ATTNFORGE_WMMA_MMA_BF16
#undef ATTNFORGE_WMMA_C
}

/// Rows of fp32 in shared memory, aligned to 32 bytes; `pitch` in elements, a multiple of 4.
ATTNFORGE_DEVICE void wmma_load(WmmaAccumulator& c, u32 smem_address, int pitch) {
  asm volatile(
      "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8], "
      "%9;"
      : "=f"(c.x[0]), "=f"(c.x[1]), "=f"(c.x[2]), "=f"(c.x[3]), "=f"(c.x[4]), "=f"(c.x[5]),
        "=f"(c.x[6]), "=f"(c.x[7])
      : "r"(smem_address), "r"(pitch)
      : "memory");
}

ATTNFORGE_DEVICE void wmma_store(u32 smem_address, const WmmaAccumulator& c, int pitch) {
  asm volatile(
      "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8}, "
      "%9;" ::"r"(smem_address),
      "f"(c.x[0]), "f"(c.x[1]), "f"(c.x[2]), "f"(c.x[3]), "f"(c.x[4]), "f"(c.x[5]), "f"(c.x[6]),
      "f"(c.x[7]), "r"(pitch)
      : "memory");
}

}  // namespace attnforge
