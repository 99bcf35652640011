// convert.cuh - fp32 to and from 16-bit floats (PTX ISA, "cvt"), without cuda_fp16.h and its like.
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

/// The two floats of a word; exact.
template <int kDtype>
ATTNFORGE_DEVICE void unpack2(u32 packed, float& low, float& high) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "unpack2 takes fp16 or bf16");
  if constexpr (kDtype == kBf16) {
    low = __uint_as_float(packed << 16);
    high = __uint_as_float(packed & 0xffff0000u);
  } else {
    asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
        : "=f"(low), "=f"(high)
        : "r"(packed));
  }
}

}  // namespace attnforge
