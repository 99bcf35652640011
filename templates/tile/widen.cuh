// widen.cuh - numbers of 8 and 4 bits as pairs of 16-bit floats, exactly. Those of a word come in
// the order that takes the fewest instructions: each with the one half a word later.
#pragma once

#include "ptx/convert.cuh"
#include "ptx/convert_e4m3.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// The two fp16 of a word as bf16, where that is exact.
ATTNFORGE_DEVICE u32 fp16_to_bf16(u32 pair) {
  float low, high;
  unpack2<kFp16>(pair, low, high);
  return pack2<kBf16>(low, high);
}

/// How the numbers of a word of kCode become kDtype: kPairs words, of bytes 0 and 2, and 1 and 3;
/// of int4 of numbers i and i + 4.
template <int kCode, int kDtype>
struct Widen {
  static constexpr int kPairs = kCode == kInt4 ? 4 : 2;

  ATTNFORGE_DEVICE static void int8_to_fp16(u32 word, u32 (&pairs)[2]) {
    // 1024 + 128 + x has x's bits, the first one turned over, as its last ones.
    constexpr u32 kOne = 0x3c003c00u, kMinus1152 = 0xe480e480u;
    pairs[0] = fma2<kFp16>(masked_xor(word, 0x00ff00ffu, 0x64806480u), kOne, kMinus1152);
    pairs[1] = fma2<kFp16>(masked_xor(word >> 8, 0x00ff00ffu, 0x64806480u), kOne, kMinus1152);
  }
  ATTNFORGE_DEVICE static void int8_to_bf16(u32 word, u32 (&pairs)[2]) {
    // 128 + x's last 7 bits, less 128 or 256 by its first: bf16 holds no 128 + 255.
    constexpr u32 kMinusOne = 0xbf80bf80u;
    const u32 odd = word >> 8;
    pairs[0] = fma2<kBf16>(masked_xor(word, 0x00800080u, 0x43004300u), kMinusOne,
                           masked_xor(word, 0x007f007fu, 0x43004300u));
    pairs[1] = fma2<kBf16>(masked_xor(odd, 0x00800080u, 0x43004300u), kMinusOne,
                           masked_xor(odd, 0x007f007fu, 0x43004300u));
  }
  ATTNFORGE_DEVICE static void int4_to_fp16(u32 word, u32 (&pairs)[4]) {
    // 1024 + 8 + x, or 1024 + 16 (8 + x): the first bit turned over.
    constexpr u32 kOne = 0x3c003c00u, kMinus1032 = 0xe408e408u, kSixteenth = 0x2c002c00u,
                  kMinus72 = 0xd480d480u;
    const u32 later = word >> 8;
    pairs[0] = fma2<kFp16>(masked_xor(word, 0x000f000fu, 0x64086408u), kOne, kMinus1032);
    pairs[1] = fma2<kFp16>(masked_xor(word, 0x00f000f0u, 0x64806480u), kSixteenth, kMinus72);
    pairs[2] = fma2<kFp16>(masked_xor(later, 0x000f000fu, 0x64086408u), kOne, kMinus1032);
    pairs[3] = fma2<kFp16>(masked_xor(later, 0x00f000f0u, 0x64806480u), kSixteenth, kMinus72);
  }
  ATTNFORGE_DEVICE static void int4_to_bf16(u32 word, u32 (&pairs)[4]) {
    constexpr u32 kOne = 0x3f803f80u, kMinus136 = 0xc308c308u;  // 128 + 8 + x
    unrolled<4>([&](int i) {
      pairs[i] = fma2<kBf16>(masked_xor(word >> (4 * i), 0x000f000fu, 0x43084308u), kOne,
                             kMinus136);
    });
  }
  ATTNFORGE_DEVICE static void float_to_fp16(u32 word, u32 (&pairs)[2]) {
    if constexpr (kCode == kE5m2) {
      pairs[0] = word << 8 & 0xff00ff00u;  // the upper halves of fp16
      pairs[1] = word & 0xff00ff00u;
    } else {
      e4m3_to_fp16(word, pairs);
    }
  }

  ATTNFORGE_DEVICE static void run(u32 word, u32 (&pairs)[kPairs]) {
    if constexpr (kCode == kInt8 && kDtype == kFp16) {
      int8_to_fp16(word, pairs);
    } else if constexpr (kCode == kInt8) {
      int8_to_bf16(word, pairs);
    } else if constexpr (kCode == kInt4 && kDtype == kFp16) {
      int4_to_fp16(word, pairs);
    } else if constexpr (kCode == kInt4) {
      int4_to_bf16(word, pairs);
    } else {
      float_to_fp16(word, pairs);
      if constexpr (kDtype == kBf16) unrolled<2>([&](int i) { pairs[i] = fp16_to_bf16(pairs[i]); });
    }
  }
};

}  // namespace attnforge
