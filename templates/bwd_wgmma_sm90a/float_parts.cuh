// float_parts.cuh - fp32 numbers on their way from one thread to another in 24 bits: upper halves
// by twos, where 16-bit numbers lie otherwise, and the bytes below by fours.
#pragma once

#include "base.cuh"

namespace attnforge {

/// The upper halves of two floats; that of `low` in the lower half.
ATTNFORGE_DEVICE u32 upper_halves(float low, float high) {
  return __byte_perm(__float_as_uint(low), __float_as_uint(high), 0x7632);
}

/// The bytes below the upper halves of four floats, that of x[i] in byte i.
ATTNFORGE_DEVICE u32 bytes_below(const float (&x)[4]) {
  const u32 low = __byte_perm(__float_as_uint(x[0]), __float_as_uint(x[1]), 0x0051);
  const u32 high = __byte_perm(__float_as_uint(x[2]), __float_as_uint(x[3]), 0x0051);
  return __byte_perm(low, high, 0x5410);
}

/// x[i] to 2^-16 of it: the last byte, which stayed behind, is as the one before. 0 and infinity
/// are what they were, and a quiet NaN is one. `upper` has the upper halves of x[i / 2 * 2] and the
/// next.
ATTNFORGE_DEVICE float joined_float(u32 upper, u32 below, int i) {
  const u32 bytes = u32(0x1000 + i % 2 * 0x2200 + (4 + i) * 0x11);
  return __uint_as_float(__byte_perm(upper, below, bytes));
}

}  // namespace attnforge
