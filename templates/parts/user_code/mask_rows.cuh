// mask_rows.cuh - booleans of which a mask's text reads one for each pair, as rows of keys: 16 of
// them are a load, and become bits together.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Whether a Rule's text is an element of an array of booleans, and the next key's comes after it.
template <class Rule>
concept ReadsMaskRows = requires {
  requires Rule::kReadsRows;
};

/// Bit i: byte i of 16 is not 0.
ATTNFORGE_DEVICE u32 bits_of_bytes(const u32 (&bytes)[4]) {
  u32 bits = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    // The top bit of each byte that is not 0, as its lowest one; then these four side by side.
    const u32 tops = (((bytes[i] & 0x7f7f7f7f) + 0x7f7f7f7f) | bytes[i]) & 0x80808080;
    bits |= ((tops >> 7) * 0x10204080 >> 28) << 4 * i;
  }
  return bits;
}

/// Bit i of lane j's is bit j of lane i's `word`.
ATTNFORGE_DEVICE u32 transposed_bits(u32 word) {
  const int lane = int(threadIdx.x) % 32;
  u32 low = 0xffff;  // of pairs of squares of bits, those before
#pragma unroll
  for (int side = 16; side > 0; side /= 2, low ^= low << side) {
    const u32 other = __shfl_xor_sync(~0u, word, side);
    word = (lane & side) == 0 ? (word & low) | (other & low) << side
                              : (word & ~low) | (other >> side & low);
  }
  return word;
}

}  // namespace attnforge
