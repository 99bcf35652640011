// largest.cuh - the larger ones of pairs of 16-bit floats (PTX ISA, "max").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Of both halves; NaN where one is.
template <int kDtype>
ATTNFORGE_DEVICE u32 largest2(u32 a, u32 b) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "largest2 takes fp16 or bf16");
  u32 largest;
  if constexpr (kDtype == kBf16)
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
  else
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(largest) : "r"(a), "r"(b));
  return largest;
}

}  // namespace attnforge
