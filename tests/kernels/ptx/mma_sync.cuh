// mma_sync.cuh - what these tests need of templates/ptx/mma_sync.cuh, on the host.
#pragma once

#include <array>
#include <cstring>

#include "base.cuh"
#include "ptx/convert.cuh"
#include "ptx/mma_fragment.cuh"
#include "tests/kernels/products.h"

namespace attnforge {

template <int kDtype>
void mma_m16n8k16(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 6>{a[0], a[1], a[2], a[3], b0, b1});
  const std::size_t lane = threadIdx.x % 32;
  float of_rows[2][16], of_columns[2][16];
  for (std::size_t k = 0; k < 16; ++k) {
    for (std::size_t i = 0; i < 2; ++i) {
      const u32 of_row = lanes[lane / 4 * 4 + k % 8 / 2][i + k / 8 * 2];
      const u32 of_column = lanes[(lane % 4 * 2 + i) * 4 + k % 8 / 2][4 + k / 8];
      of_rows[i][k] = of_half<kDtype>(of_row >> k % 2 * 16 & 0xffffu);
      of_columns[i][k] = of_half<kDtype>(of_column >> k % 2 * 16 & 0xffffu);
    }
  }
  RowsOfProduct<16>(of_rows).add(c, of_columns);
}
template <int kDtype>
void mma_m16n8k16_zero(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  for (float& x : c) x = 0.0f;
  mma_m16n8k16<kDtype>(c, a, b0, b1);
}

template <bool kFirst>
void mma_m16n8k32_int8(int (&c)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  const auto& lanes = test::words_of_lanes(std::array<unsigned, 6>{a[0], a[1], a[2], a[3], b0, b1});
  const std::size_t lane = threadIdx.x % 32;
  signed char of_rows[2][32], of_columns[2][32];
  for (std::size_t i = 0; i < 2; ++i)
    for (std::size_t word = 0; word < 8; ++word) {  // 4 elements of it
      std::memcpy(of_rows[i] + word * 4, &lanes[lane / 4 * 4 + word % 4][i + word / 4 * 2], 4);
      std::memcpy(of_columns[i] + word * 4, &lanes[(lane % 4 * 2 + i) * 4 + word % 4][4 + word / 4],
                  4);
    }
  for (int e = 0; e < 4; ++e) {
    if (kFirst) c[e] = 0;
    for (int k = 0; k < 32; ++k) c[e] += of_rows[e / 2][k] * of_columns[e % 2][k];
  }
}

}  // namespace attnforge
