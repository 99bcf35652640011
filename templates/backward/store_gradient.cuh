// store_gradient.cuh - mma accumulators to rows of a gradient: of any dtype, stored or added.
#pragma once

#include "tile/elements.cuh"
#include "tile/store_rows.cuh"

namespace attnforge {

/// Row half kHalf (0: c[0], c[1]; 1: c[2], c[3]) of the first kFragments accumulators, times
/// `factor`, to the row that begins at `row`, in bytes, of elements of kDtype aligned to kAlignment
/// bytes; kAdd: on top of what is there. All lanes of a warp must call it; only those with
/// `present` write.
template <int kDtype, bool kAdd, int kHalf, int kAlignment, int kFragments, int kComputed>
ATTNFORGE_DEVICE void store_gradient_row(const float (&c)[kComputed][4], float factor, char* row,
                                         bool present, int quad_lane) {
  if constexpr (kDtype != kFp32 && !kAdd) {
    store_row<kDtype, kHalf, kAlignment, kFragments>(c, factor, reinterpret_cast<u16*>(row),
                                                     present, quad_lane);
  } else {
    if (!present) return;
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
      char* to = row + (j * 8 + quad_lane * 2) * element_bytes(kDtype);
      float pair[2] = {0.0f, 0.0f};
      if constexpr (kAdd) {
        pair[0] = load_1<kDtype>(to);
        pair[1] = load_1<kDtype>(to + element_bytes(kDtype));
      }
      pair[0] = fmaf(c[j][2 * kHalf], factor, pair[0]);
      pair[1] = fmaf(c[j][2 * kHalf + 1], factor, pair[1]);
      if constexpr (kDtype == kFp32 || kAlignment >= 4) {
        store_2<kDtype>(to, pair[0], pair[1]);
      } else {
        store_1<kDtype>(to, pair[0]);
        store_1<kDtype>(to + element_bytes(kDtype), pair[1]);
      }
    }
  }
}

}  // namespace attnforge
