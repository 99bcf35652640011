// convert.cuh - fp32 to and from 16-bit floats (PTX ISA, "cvt"). Instead of cuda_bf16.h and
// cuda_fp16.h.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Two floats rounded to nearest even; `low` in the lower half.
template <int kDtype>
ATTNFORGE_DEVICE u32 pack2(float low, float high) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "pack2 makes fp16 or bf16");
  u32 packed;
  if constexpr (kDtype == kBf16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

}  // namespace attnforge
