// convert_e4m3.cuh - e4m3 to fp16 (PTX ISA, "cvt", from sm_89 on), and what other small numbers
// become floats by: logic of three words ("lop3"), and sums of pairs ("fma").
#pragma once

#include "base.cuh"

namespace attnforge {

/// (a & mask) ^ b in one instruction: the compiler takes two where mask and b are constants.
ATTNFORGE_DEVICE u32 masked_xor(u32 a, u32 mask, u32 b) {
  u32 x;
  asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(x) : "r"(a), "r"(mask), "r"(b));
  return x;
}

/// a * b + c of two fp16 each.
ATTNFORGE_DEVICE u32 fma2_fp16(u32 a, u32 b, u32 c) {
  u32 sum;
  asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "r"(b), "r"(c));
  return sum;
}

/// The e4m3 in the upper bytes of two halves, whose lower ones are 0, as fp16: the exponent has one
/// bit more there, so that they are 2^8 too small, and NaN has bits of its own.
ATTNFORGE_DEVICE u32 e4m3_pair_to_fp16(u32 bytes) {
  const u32 magnitude = bytes >> 1 & 0x3f803f80u;
  const u32 nan = (magnitude + 0x00800080u) & 0x40004000u;
  constexpr u32 kTwoTo8 = 0x5c005c00u, kMinusZero = 0x80008000u;
  return fma2_fp16((bytes & 0x80008000u) | magnitude | nan, kTwoTo8, kMinusZero);
}

#if __CUDA_ARCH__ >= 890
inline constexpr bool kConvertsE4m3 = true;
/// Bytes 0 and 1 of a word, and bytes 2 and 3.
ATTNFORGE_DEVICE void convert_e4m3(u32 word, u32 (&pairs)[2]) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l;"
      " cvt.rn.f16x2.e4m3x2 %1, h; }"
      : "=r"(pairs[0]), "=r"(pairs[1])
      : "r"(word));
}
#else
inline constexpr bool kConvertsE4m3 = false;
#endif

/// Bytes 0 and 2 of a word, and bytes 1 and 3.
ATTNFORGE_DEVICE void e4m3_to_fp16(u32 word, u32 (&pairs)[2]) {
#if __CUDA_ARCH__ >= 890
  convert_e4m3(__byte_perm(word, 0, 0x3120), pairs);
#else
  pairs[0] = e4m3_pair_to_fp16(word << 8 & 0xff00ff00u);
  pairs[1] = e4m3_pair_to_fp16(word & 0xff00ff00u);
#endif
}
/// Neighbours if kConvertsE4m3, else as e4m3_to_fp16().
ATTNFORGE_DEVICE void e4m3_to_fp16_as_they_come(u32 word, u32 (&pairs)[2]) {
#if __CUDA_ARCH__ >= 890
  convert_e4m3(word, pairs);
#else
  e4m3_to_fp16(word, pairs);
#endif
}

}  // namespace attnforge
