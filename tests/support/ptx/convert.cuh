// convert.cuh - templates/ptx/convert.cuh on the host.
#pragma once

#include <limits>
#include <vector>

#include "base.cuh"
#include "generator/formats/half.h"

namespace attnforge {

/// of() of all numbers of 8 or 16 bits: to call it for each of a product is half of a test.
template <class Bits>
std::vector<float> all_of(float (*of)(Bits)) {
  std::vector<float> all;
  for (u32 bits = 0; bits <= std::numeric_limits<Bits>::max(); ++bits)
    all.push_back(of(static_cast<Bits>(bits)));
  return all;
}
inline const std::vector<float> kOfFp16 = all_of(fp16_to_float);

template <int kDtype>
float of_half(u32 bits) {
  static_assert(kDtype == kFp16 || kDtype == kBf16);
  return kDtype == kBf16 ? __uint_as_float(bits << 16) : kOfFp16[bits];
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
