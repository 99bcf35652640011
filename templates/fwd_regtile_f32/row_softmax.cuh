// row_softmax.cuh - online softmax in base 2 over the rows of a thread, in fp32 throughout (Milakov
// and Gimelshein 2018), and how the halves of a row's keys are put together.
#pragma once

#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/maximum.cuh"

namespace attnforge {

/// State of kRows rows, each spread over kLanes (4 or 8) neighbouring lanes. row_max is in log2
/// units, of scores times scale_log2; row_sum is this lane's share until finish(). Scores are
/// anything with at(row, key), for kKeys keys of this lane.
template <int kRows, int kLanes>
struct RowSoftmax {
  float row_max[kRows], row_sum[kRows];
  // 1: some row of the warp has a far maximum; the same in all lanes. As a bool it costs configs at
  // the limit of registers a spill.
  u32 far = 0;

  ATTNFORGE_DEVICE RowSoftmax() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) row_max[r] = kLowestFloat, row_sum[r] = 0.0f;
  }

  ATTNFORGE_DEVICE static float max_of_row(float x) {
    x = fmaxf(x, shuffle_xor<1>(x));
    x = fmaxf(x, shuffle_xor<2>(x));
    return kLanes == 8 ? fmaxf(x, shuffle_xor<4>(x)) : x;
  }
  ATTNFORGE_DEVICE static float sum_of_row(float x) {
    x += shuffle_xor<1>(x);
    x += shuffle_xor<2>(x);
    return kLanes == 8 ? x + shuffle_xor<4>(x) : x;
  }

  /// Scores to probabilities relative to the maxima, which are raised to them before. True if older
  /// outputs are to be multiplied with `rescale` (sums are done), which is 1 otherwise. Lazy: as
  /// long as no row of the warp grew by more than 2^8 it keeps the old maxima. The answer is the
  /// same in all lanes.
  template <class Scores>
  ATTNFORGE_DEVICE bool probabilities(Scores& s, float scale_log2, float (&rescale)[kRows]) {
    float top[kRows];
    bool grew = far != 0;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rescale[r] = 1.0f;
      top[r] = s.at(r, 0);
#pragma unroll
      for (int j = 1; j < Scores::kKeys; ++j) top[r] = fmaxf(top[r], s.at(r, j));
      grew |= fmaf(top[r], scale_log2, -row_max[r]) > 8.0f;
    }
    const bool raised = any_lane(grew);
    if (raised) {
      bool is_far_row = false;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float old = row_max[r];
        row_max[r] = fmaxf(max_of_row(top[r]) * scale_log2, old);
        rescale[r] = exp2_approx(old - row_max[r]);
        row_sum[r] *= rescale[r];
        is_far_row |= is_far(row_max[r]);
      }
      far = any_lane(is_far_row) ? 1 : 0;
      if (far != 0) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int j = 0; j < Scores::kKeys; ++j)
            s.at(r, j) = relative_to_maximum(s.at(r, j), scale_log2, row_max[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float shift = far != 0 ? 0.0f : row_max[r];
#pragma unroll
      for (int j = 0; j < Scores::kKeys; ++j) {
        s.at(r, j) = exp2_approx(fmaf(s.at(r, j), scale_log2, -shift));
        row_sum[r] += s.at(r, j);
      }
    }
    return raised;
  }

  /// Takes in the state of the same row over other keys: its outputs are to be added times `other`,
  /// one's own times `own`.
  ATTNFORGE_DEVICE void merge(int r, float other_max, float other_sum, float& own, float& other) {
    const float top = fmaxf(row_max[r], other_max);
    own = exp2_approx(row_max[r] - top);
    other = exp2_approx(other_max - top);
    row_max[r] = top;
    row_sum[r] = row_sum[r] * own + other_sum * other;
  }

  /// Sum of the whole row. `inverse` is 0 for a row that saw no key, `lse` in natural logarithm.
  ATTNFORGE_DEVICE void finish(int r, float& inverse, float& lse) const {
    constexpr float kLn2 = 0.6931471805599453f;
    const float sum = sum_of_row(row_sum[r]);
    const bool empty = sum == 0.0f;
    inverse = empty ? 0.0f : reciprocal_approx(sum);
    lse = empty ? negative_infinity() : (row_max[r] + log2_approx(sum)) * kLn2;
  }
};

}  // namespace attnforge
