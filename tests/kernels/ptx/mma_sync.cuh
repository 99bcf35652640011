// mma_sync.cuh - what these tests need of templates/ptx/mma_sync.cuh, on the host.
#pragma once

#include <array>

#include "base.cuh"
#include "ptx/convert.cuh"
#include "ptx/mma_fragment.cuh"

namespace attnforge {

template <int kDtype>
void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const auto lanes = test::words_of_lanes(std::array<unsigned, 6>{a[0], a[1], a[2], a[3], b0, b1});
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto half = [&](int of_lane, int word, int k) {
    const u32 bits = lanes[static_cast<u32>(of_lane)][static_cast<u32>(word)];
    return of_half<kDtype>(bits >> k % 2 * 16 & 0xffffu);
  };
  for (int e = 0; e < 4; ++e)
    for (int k = 0; k < 16; ++k)
      c[e] += half(lane / 4 * 4 + k % 8 / 2, e / 2 + k / 8 * 2, k) *
              half((lane % 4 * 2 + e % 2) * 4 + k % 8 / 2, 4 + k / 8, k);
}
template <int kDtype>
void mma_m16n8k16_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  for (float& x : c) x = 0.0f;
  mma_m16n8k16<kDtype>(c, a, b0, b1);
}

template <bool kFirst>
void mma_m16n8k32_int8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const auto lanes = test::words_of_lanes(std::array<unsigned, 6>{a[0], a[1], a[2], a[3], b0, b1});
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto byte = [&](int of_lane, int word, int k) {
    const u32 bits = lanes[static_cast<u32>(of_lane)][static_cast<u32>(word)];
    return int{static_cast<signed char>(bits >> k % 4 * 8 & 0xffu)};
  };
  for (int e = 0; e < 4; ++e) {
    if (kFirst) c[e] = 0;
    for (int k = 0; k < 32; ++k)
      c[e] += byte(lane / 4 * 4 + k % 16 / 4, e / 2 + k / 16 * 2, k) *
              byte((lane % 4 * 2 + e % 2) * 4 + k % 16 / 4, 4 + k / 16, k);
  }
}

}  // namespace attnforge
