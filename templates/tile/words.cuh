// words.cuh - rows of any alignment as 32-bit words: for code that moves elements as they are.
#pragma once

#include "base.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// `from` is aligned to kAlignment bytes.
template <int kAlignment, int kWords>
ATTNFORGE_DEVICE void load_words(const char* from, u32 (&to)[kWords]) {
  if constexpr (kAlignment >= 16 && kWords % 4 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from + 4 * w);
      to[w] = x.x, to[w + 1] = x.y, to[w + 2] = x.z, to[w + 3] = x.w;
    }
  } else if constexpr (kAlignment >= 8 && kWords % 2 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 2) {
      const uint2 x = *reinterpret_cast<const uint2*>(from + 4 * w);
      to[w] = x.x, to[w + 1] = x.y;
    }
  } else if constexpr (kAlignment >= 4) {
    unrolled<kWords>([&](int w) { to[w] = *reinterpret_cast<const u32*>(from + 4 * w); });
  } else {
    const u16* halves = reinterpret_cast<const u16*>(from);
    unrolled<kWords>([&](int w) { to[w] = halves[2 * w] | u32(halves[2 * w + 1]) << 16; });
  }
}

/// `to` is aligned to kAlignment bytes.
template <int kAlignment, int kWords>
ATTNFORGE_DEVICE void store_words(char* to, const u32 (&from)[kWords]) {
  if constexpr (kAlignment >= 16 && kWords % 4 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 4)
      *reinterpret_cast<uint4*>(to + 4 * w) = make_uint4(from[w], from[w + 1], from[w + 2],
                                                         from[w + 3]);
  } else if constexpr (kAlignment >= 8 && kWords % 2 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 2)
      *reinterpret_cast<uint2*>(to + 4 * w) = make_uint2(from[w], from[w + 1]);
  } else if constexpr (kAlignment >= 4) {
    unrolled<kWords>([&](int w) { *reinterpret_cast<u32*>(to + 4 * w) = from[w]; });
  } else {
    u16* halves = reinterpret_cast<u16*>(to);
    unrolled<kWords>(
        [&](int w) { halves[2 * w] = u16(from[w]), halves[2 * w + 1] = u16(from[w] >> 16); });
  }
}

}  // namespace attnforge
