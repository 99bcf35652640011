// widen.cuh - numbers of 8 and 4 bits as pairs of fp16, exactly. Those of a word come in the order
// that takes the fewest instructions: each with the one half a word later. Integers come as the
// smallest numbers of fp16: an offset more, times 2^-24.
#pragma once

#include "ptx/convert_e4m3.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// How the numbers of a word of kCode become fp16: kPairs words, of bytes 0 and 2, and 1 and 3; of
/// int4 of numbers i and i + 4, which are 16 times larger if i is odd.
template <int kCode>
struct Widen {
  static constexpr int kPairs = kCode == kInt4 ? 4 : 2;
  /// Whether run_in_order() makes pairs of bytes 0 and 1, and 2 and 3, which takes less.
  static constexpr bool kInOrder = kCode == kE4m3 && kConvertsE4m3;
  /// A pair of offsets to be added to integers: -128 or -8, times 2^-24.
  static constexpr u32 kMinusOffset = kCode == kInt8 ? 0x80808080u : 0x80088008u;

  ATTNFORGE_DEVICE static void run_int8(u32 word, u32 (&pairs)[2]) {
    unrolled<2>([&](int i) { pairs[i] = masked_xor(word >> (8 * i), 0x00ff00ffu, 0x00800080u); });
  }
  ATTNFORGE_DEVICE static void run_int4(u32 word, u32 (&pairs)[4]) {
    unrolled<2>([&](int i) {
      pairs[2 * i] = masked_xor(word >> (8 * i), 0x000f000fu, 0x00080008u);
      pairs[2 * i + 1] = masked_xor(word >> (8 * i), 0x00f000f0u, 0x00800080u);
    });
  }
  /// The upper halves of fp16.
  ATTNFORGE_DEVICE static void run_e5m2(u32 word, u32 (&pairs)[2]) {
    pairs[0] = __byte_perm(word, 0, 0x2404);
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
  ATTNFORGE_DEVICE static void run_in_order(u32 word, u32 (&pairs)[kPairs]) {
    if constexpr (kInOrder)
      e4m3_to_fp16_as_they_come(word, pairs);
    else
      run(word, pairs);
  }
};

}  // namespace attnforge
