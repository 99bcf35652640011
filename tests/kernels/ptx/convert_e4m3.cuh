// convert_e4m3.cuh - templates/ptx/convert_e4m3.cuh on the host: e4m3 as kernels before sm_89 make
// it, in the orders of later ones.
#pragma once

#include <cmath>

#include "base.cuh"
#include "ptx/convert.cuh"

namespace attnforge {

inline u32 masked_xor(u32 a, u32 mask, u32 b) { return (a & mask) ^ b; }
inline u32 fma2_fp16(u32 a, u32 b, u32 c) {
  const auto half = [&](int i) {
    const auto of = [&](u32 pair) { return double{of_half<kFp16>(pair >> 16 * i & 0xffffu)}; };
    return static_cast<float>(of(a) * of(b) + of(c));
  };
  return pack2<kFp16>(half(0), half(1));
}

inline u32 e4m3_pair_to_fp16(u32 bytes) {
  const u32 magnitude = bytes >> 1 & 0x3f803f80u;
  const u32 nan = (magnitude + 0x00800080u) & 0x40004000u;
  return fma2_fp16((bytes & 0x80008000u) | magnitude | nan, 0x5c005c00u, 0x80008000u);
}
inline void e4m3_to_fp16(u32 word, u32 (&pairs)[2]) {
  pairs[0] = e4m3_pair_to_fp16(word << 8 & 0xff00ff00u);
  pairs[1] = e4m3_pair_to_fp16(word & 0xff00ff00u);
}
inline constexpr bool kConvertsE4m3 = true;
inline void e4m3_to_fp16_as_they_come(u32 word, u32 (&pairs)[2]) {
  e4m3_to_fp16(__byte_perm(word, 0, 0x3120), pairs);
}

}  // namespace attnforge
