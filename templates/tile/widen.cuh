// widen.cuh - numbers of 8 and 4 bits as pairs of fp16, exactly. Those of a word come in the order
// that takes the fewest instructions: each with the one half a word later.
#pragma once

#include "ptx/convert_e4m3.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// How the numbers of a word of kCode become fp16: kPairs words, of bytes 0 and 2, and 1 and 3; of
/// int4 of numbers i and i + 4.
template <int kCode>
struct Widen {
  static constexpr int kPairs = kCode == kInt4 ? 4 : 2;
  // a * kOne + c is a + c, for which there is no faster instruction.
  static constexpr u32 kOne = 0x3c003c00u;

  /// 1024 + 128 + x has x's bits, the first one turned over, as its last ones.
  ATTNFORGE_DEVICE static void run_int8(u32 word, u32 (&pairs)[2]) {
    constexpr u32 kMinus1152 = 0xe480e480u;
    pairs[0] = fma2_fp16(masked_xor(word, 0x00ff00ffu, 0x64806480u), kOne, kMinus1152);
    pairs[1] = fma2_fp16(masked_xor(word >> 8, 0x00ff00ffu, 0x64806480u), kOne, kMinus1152);
  }
  /// 1024 + 8 + x, or 1024 + 16 (8 + x).
  ATTNFORGE_DEVICE static void run_int4(u32 word, u32 (&pairs)[4]) {
    constexpr u32 kMinus1032 = 0xe408e408u, kSixteenth = 0x2c002c00u, kMinus72 = 0xd480d480u;
    unrolled<2>([&](int i) {
      const u32 from = word >> (8 * i);
      pairs[2 * i] = fma2_fp16(masked_xor(from, 0x000f000fu, 0x64086408u), kOne, kMinus1032);
      pairs[2 * i + 1] = fma2_fp16(masked_xor(from, 0x00f000f0u, 0x64806480u), kSixteenth,
                                   kMinus72);
    });
  }
  /// The upper halves of fp16.
  ATTNFORGE_DEVICE static void run_e5m2(u32 word, u32 (&pairs)[2]) {
    pairs[0] = word << 8 & 0xff00ff00u;
    pairs[1] = word & 0xff00ff00u;
  }

  ATTNFORGE_DEVICE static void run(u32 word, u32 (&pairs)[kPairs]) {
    if constexpr (kCode == kInt8)
      run_int8(word, pairs);
    else if constexpr (kCode == kInt4)
      run_int4(word, pairs);
    else if constexpr (kCode == kE5m2)
      run_e5m2(word, pairs);
    else
      e4m3_to_fp16(word, pairs);
  }
};

}  // namespace attnforge
