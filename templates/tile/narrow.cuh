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
/// integers.
template <int kCode>
ATTNFORGE_DEVICE u32 narrow4(float x0, float x1, float x2, float x3) {
  static_assert(is_low_bit(kCode), "formats of caches");
  if constexpr (kCode == kE4m3 || kCode == kE5m2) {
    return pack2_float8<kCode>(x0, x1) | pack2_float8<kCode>(x2, x3) << 16;
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

/// narrow4() of the quotients of x and a divisor, in a third of the instructions: `reciprocal` is
/// the divisor's within 2^-23, and no quotient is farther from 0 than the largest number. False
/// where a quotient is so near the middle of two integers that its product with it may be on the
/// other side.
template <int kCode>
ATTNFORGE_DEVICE bool narrow4_by_products(const float (&x)[4], float reciprocal, u32& word) {
  static_assert(kCode == kInt8 || kCode == kInt4, "integers");
  // A sum with it is rounded to an integer, which its lowest bits are.
  constexpr float kRounding = 12582912.0f, kSurelyNearest = 0.4999f;
  float numbers[4], farthest = 0.0f;
  u32 bits[4];
  unrolled<4>([&](int i) {
    const float sum = fmaf(x[i], reciprocal, kRounding);
    bits[i] = __float_as_uint(sum);
    numbers[i] = sum - kRounding;
    farthest = fmaxf(farthest, fabsf(fmaf(x[i], reciprocal, -numbers[i])));
  });
  if constexpr (kCode == kInt8) {
    word = (bits[0] & 255) | (bits[1] & 255) << 8 | (bits[2] & 255) << 16 | bits[3] << 24;
  } else {
    // Each plus 8 is not negative, and of its bits the highest is the other way round then.
    constexpr float kEights = 0x8888;
    const float high = fmaf(numbers[3], 16.0f, numbers[2]),
                low = fmaf(numbers[1], 16.0f, numbers[0]);
    word = (__float_as_uint(fmaf(high, 256.0f, low) + (kRounding + kEights)) & 0xffff) ^ 0x8888;
  }
  return farthest < kSurelyNearest;
}

}  // namespace attnforge
