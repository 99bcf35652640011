// convert.cuh - templates/ptx/convert.cuh on the host, of bf16.
#pragma once

#include "base.cuh"

namespace attnforge {

/// To the nearest, ties to even.
inline u32 bf16_bits(float x) {
  const u32 bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
}
template <int kDtype>
u32 pack2(float low, float high) {
  static_assert(kDtype == kBf16);
  return bf16_bits(low) | bf16_bits(high) << 16;
}
template <int kDtype>
void unpack2(u32 packed, float& low, float& high) {
  static_assert(kDtype == kBf16);
  low = __uint_as_float(packed << 16);
  high = __uint_as_float(packed & 0xffff0000u);
}

}  // namespace attnforge
