// narrow.cuh - fp32 as numbers of 8 and 4 bits: nearest, ties to even, no farther from 0 than the
// largest of the format. The other way is widen.cuh.
#pragma once

#include "ptx/convert_float8.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// The largest number of kCode.
template <int kCode>
inline constexpr float kLargestNumber = kCode == kInt8   ? 127.0f
                                        : kCode == kInt4 ? 7.0f
                                        : kCode == kE4m3 ? 448.0f
                                                         : 57344.0f;

/// Four numbers, the first one in the lowest bits: a word, of int4 half of one. NaN is 0 of
/// integers. kWithin: integers are of numbers that are not beyond the largest, nor NaN, and of int4
/// the upper half of the word is anything. A sum with 1.5 * 2^23 is rounded as they are to be, and
/// has them in its lowest bits.
template <int kCode, bool kWithin = false>
ATTNFORGE_DEVICE u32 narrow4(float x0, float x1, float x2, float x3) {
  static_assert(is_low_bit(kCode), "formats of caches");
  if constexpr (kCode == kE4m3 || kCode == kE5m2) {
    return pack2_float8<kCode>(x0, x1) | pack2_float8<kCode>(x2, x3) << 16;
  } else if constexpr (kWithin) {
    const auto number = [](float x) { return __float_as_uint(x + 12582912.0f); };
    if constexpr (kCode == kInt8) {
      const u32 low = __byte_perm(number(x0), number(x1), 0x0040);
      return __byte_perm(low, __byte_perm(number(x2), number(x3), 0x0040), 0x5410);
    } else {
      const u32 low = (number(x0) & 15u) | number(x1) << 4;
      return __byte_perm(low, (number(x2) & 15u) | number(x3) << 4, 0x0040);
    }
  } else {
    constexpr int kMost = int(kLargestNumber<kCode>), kBits = kCode == kInt4 ? 4 : 8;
    const float x[4] = {x0, x1, x2, x3};
    u32 word = 0;
    unrolled<4>([&](int i) {
      const int number = max(min(__float2int_rn(x[i]), kMost), -kMost);
      word |= (u32(number) & ((1u << kBits) - 1)) << (kBits * i);
    });
    return word;
  }
}

}  // namespace attnforge
