// store_rows.cuh - the epilogue: mma accumulators from registers to rows of a 16-bit tensor.
#pragma once

#include "ptx/convert.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// Gives lane q of a quad the words that all four lanes hold of fragment q: a 4 x 4 transpose in
/// two exchanges.
ATTNFORGE_DEVICE void quad_transpose(u32 (&w)[4], int quad_lane) {
  const bool odd = quad_lane & 1, high = quad_lane & 2;
  u32 x = shuffle_xor<1>(odd ? w[0] : w[1]);
  u32 y = shuffle_xor<1>(odd ? w[2] : w[3]);
  if (odd) {
    w[0] = x, w[2] = y;
  } else {
    w[1] = x, w[3] = y;
  }
  x = shuffle_xor<2>(high ? w[0] : w[2]);
  y = shuffle_xor<2>(high ? w[1] : w[3]);
  if (high) {
    w[0] = x, w[1] = y;
  } else {
    w[2] = x, w[3] = y;
  }
}

/// Stores row half `kHalf` (0: c[0], c[1]; 1: c[2], c[3]) of the first kFragments accumulators,
/// times `factor`, to `row` (the row's first element). All lanes of the warp must call it; only
/// those with `present` write. Rows are aligned to kAlignment bytes.
template <int kDtype, int kHalf, int kAlignment, int kFragments, int kComputed>
ATTNFORGE_DEVICE void store_row(const float (&c)[kComputed][4], float factor, u16* row,
                                bool present, int quad_lane) {
  static_assert(kFragments <= kComputed, "there is no more to store");
  constexpr int kWide = kAlignment >= 16 ? kFragments / 4 * 4
                                         : 0;  // fragments stored 16 bytes a lane
#pragma unroll
  for (int j = 0; j < kWide; j += 4) {
    u32 w[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      w[i] = pack2<kDtype>(c[j + i][2 * kHalf] * factor, c[j + i][2 * kHalf + 1] * factor);
    quad_transpose(w, quad_lane);
    if (present)
      *reinterpret_cast<uint4*>(row + (j + quad_lane) * 8) = make_uint4(w[0], w[1], w[2], w[3]);
  }
#pragma unroll
  for (int j = kWide; j < kFragments; ++j) {
    const u32 w = pack2<kDtype>(c[j][2 * kHalf] * factor, c[j][2 * kHalf + 1] * factor);
    u16* to = row + j * 8 + quad_lane * 2;
    if (!present) continue;
    if constexpr (kAlignment >= 4) {
      *reinterpret_cast<u32*>(to) = w;
    } else {
      to[0] = static_cast<u16>(w);
      to[1] = static_cast<u16>(w >> 16);
    }
  }
}

}  // namespace attnforge
