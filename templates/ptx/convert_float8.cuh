// convert_float8.cuh - fp32 to e4m3 and e5m2 (PTX ISA, "cvt" with ".satfinite", from sm_89 on).
#pragma once

#include "base.cuh"

namespace attnforge {

/// The number of kCode nearest to x, ties to even: beyond the largest that, and NaN is 0x7f.
template <int kCode>
ATTNFORGE_DEVICE u32 float8_of(float x) {
  static_assert(kCode == kE4m3 || kCode == kE5m2, "floats of 8 bits");
  constexpr int kMantissa = kCode == kE4m3 ? 3 : 2, kBias = kCode == kE4m3 ? 7 : 15;
  constexpr u32 kLargest = kCode == kE4m3 ? 0x43e00000u : 0x47600000u;  // 448, 57344
  constexpr u32 kLeastNormal = u32(128 - kBias) << 23;
  const u32 bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return 0x7fu;
  const u32 kept = magnitude < kLargest ? magnitude : kLargest;
  u32 code;
  if (kept <
      kLeastNormal) {  // floats from here on are as far apart as the code's numbers next to 0
    constexpr u32 kApart = u32(127 + 24 - kBias - kMantissa) << 23;
    code = __float_as_uint(__uint_as_float(kept) + __uint_as_float(kApart)) - kApart;
  } else {
    constexpr int kDropped = 23 - kMantissa;
    constexpr u32 kHalf = (1u << (kDropped - 1)) - 1;
    code = (kept - (u32(127 - kBias) << 23) + kHalf + (kept >> kDropped & 1u)) >> kDropped;
  }
  return code | (bits >> 24 & 0x80u);
}

/// float8_of() of both; that of `low` in the lower byte.
template <int kCode>
ATTNFORGE_DEVICE u32 pack2_float8(float low, float high) {
#if __CUDA_ARCH__ >= 890
  static_assert(kCode == kE4m3 || kCode == kE5m2, "floats of 8 bits");
  u16 packed;
  if constexpr (kCode == kE4m3)
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  else
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(high), "f"(low));
  return packed;
#else
  return float8_of<kCode>(low) | float8_of<kCode>(high) << 8;
#endif
}

}  // namespace attnforge
