// ldmatrix.cuh - templates/ptx/ldmatrix.cuh on the host.
#pragma once

#include <array>

#include "base.cuh"

namespace attnforge {

/// The i-th matrix's part of a lane, of which lanes[8 i + r] knows where row r begins.
template <class Lanes>
u32 of_matrix(const Lanes& lanes, u32 i, bool transposed) {
  const u32 lane = threadIdx.x % 32;
  u32 word = 0;
  for (u32 e = 0; e < 2; ++e) {
    const u32 row = transposed ? lane % 4 * 2 + e : lane / 4;
    const u32 column = transposed ? lane / 4 : lane % 4 * 2 + e;
    word |= u32{test::own_sm().load<u16>(lanes[i * 8 + row][0] + column * 2)} << 16 * e;
  }
  return word;
}
inline void ldmatrix_x4(u32 (&r)[4], u32 smem_address) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 1>{smem_address});
  for (u32 i = 0; i < 4; ++i) r[i] = of_matrix(lanes, i, false);
}
inline void ldmatrix_x4_trans(u32 (&r)[4], u32 smem_address) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 1>{smem_address});
  for (u32 i = 0; i < 4; ++i) r[i] = of_matrix(lanes, i, true);
}
inline void ldmatrix_x2_trans(u32& r0, u32& r1, u32 smem_address) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 1>{smem_address});
  r0 = of_matrix(lanes, 0, true);
  r1 = of_matrix(lanes, 1, true);
}

}  // namespace attnforge
