// convert.cuh - templates/ptx/convert.cuh on the host.
#pragma once

#include "base.cuh"
#include "generator/formats/half.h"

namespace attnforge {

template <int kDtype>
float of_half(u32 bits) {
  static_assert(kDtype == kFp16 || kDtype == kBf16);
  return kDtype == kBf16 ? __uint_as_float(bits << 16) : fp16_to_float(static_cast<u16>(bits));
}
template <int kDtype>
u32 pack2(float low, float high) {
  static_assert(kDtype == kFp16 || kDtype == kBf16);
  const auto round = kDtype == kBf16 ? float_to_bf16 : float_to_fp16;
  return u32{round(low)} | u32{round(high)} << 16;
}
template <int kDtype>
void unpack2(u32 packed, float& low, float& high) {
  low = of_half<kDtype>(packed & 0xffffu);
  high = of_half<kDtype>(packed >> 16);
}

}  // namespace attnforge
