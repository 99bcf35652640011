// stmatrix.cuh - templates/ptx/stmatrix.cuh on the host.
#pragma once

#include <array>

#include "base.cuh"

namespace attnforge {

inline void stmatrix_x4(u32 smem_address, const u32 (&r)[4]) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 1>{smem_address});
  const u32 lane = threadIdx.x % 32;
  for (u32 i = 0; i < 4; ++i) test::own_sm().store(lanes[i * 8 + lane / 4][0] + lane % 4 * 4, r[i]);
}

inline void stmatrix_x4_trans(u32 smem_address, const u32 (&r)[4]) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 1>{smem_address});
  const u32 lane = threadIdx.x % 32;
  for (u32 i = 0; i < 4; ++i)
    for (u32 e = 0; e < 2; ++e)
      test::own_sm().store(lanes[i * 8 + lane % 4 * 2 + e][0] + lane / 4 * 2,
                           static_cast<u16>(r[i] >> 16 * e));
}

}  // namespace attnforge
