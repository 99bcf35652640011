// row_softmax.cuh - online softmax in base 2 over the rows of a thread, in fp32 throughout (Milakov
// and Gimelshein 2018), and how the halves of a row's keys are put together.
#pragma once

#include "base.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// State of kRows rows, each spread over kLanes (4 or 8) neighbouring lanes. row_max is in raw
/// scores; row_sum is this lane's share until finish(). Scores are anything with at(row, key), for
/// kKeys keys of this lane.
template <int kRows, int kLanes>
struct RowSoftmax {
  /// The maximum of a row that has seen no key. Finite: a hidden score of -inf relative to it is
  /// -inf, not -inf minus -inf, and its exponential 0.
  static constexpr float kNothingSeen = -1e30f;

  float row_max[kRows], row_sum[kRows];

  ATTNFORGE_DEVICE RowSoftmax() {
#pragma unroll
    for (int r = 0; r < kRows; ++r) row_max[r] = kNothingSeen, row_sum[r] = 0.0f;
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

  /// Raises the maxima to those of the scores; `rescale` is what older outputs are to be multiplied
  /// with (sums are done). Lazy: as long as no row of the warp grew by more than 2^8 it keeps the
  /// old maxima and returns false, with `rescale` of 1. The answer is the same in all lanes.
  template <class Scores>
  ATTNFORGE_DEVICE bool raise_max(const Scores& s, float scale_log2, float (&rescale)[kRows]) {
    float top[kRows];
    bool grew = false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      rescale[r] = 1.0f;
      top[r] = s.at(r, 0);
#pragma unroll
      for (int j = 1; j < Scores::kKeys; ++j) top[r] = fmaxf(top[r], s.at(r, j));
      grew |= (top[r] - row_max[r]) * scale_log2 > 8.0f;
    }
    if (!any_lane(grew)) return false;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float old = row_max[r];
      row_max[r] = max_of_row(fmaxf(top[r], old));
      rescale[r] = exp2_approx((old - row_max[r]) * scale_log2);
      row_sum[r] *= rescale[r];
    }
    return true;
  }

  /// Scores to probabilities relative to the current maxima, and their sums.
  template <class Scores>
  ATTNFORGE_DEVICE void exponentiate(Scores& s, float scale_log2) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float shift = row_max[r] * scale_log2;
#pragma unroll
      for (int j = 0; j < Scores::kKeys; ++j) {
        s.at(r, j) = exp2_approx(fmaf(s.at(r, j), scale_log2, -shift));
        row_sum[r] += s.at(r, j);
      }
    }
  }

  /// Takes in the state of the same row over other keys: its outputs are to be added times `other`,
  /// one's own times `own`.
  ATTNFORGE_DEVICE void merge(int r, float other_max, float other_sum, float scale_log2, float& own,
                              float& other) {
    const float top = fmaxf(row_max[r], other_max);
    own = exp2_approx((row_max[r] - top) * scale_log2);
    other = exp2_approx((other_max - top) * scale_log2);
    row_max[r] = top;
    row_sum[r] = row_sum[r] * own + other_sum * other;
  }

  /// Sum of the whole row. `inverse` is 0 for a row that saw no key, `lse` in natural logarithm.
  ATTNFORGE_DEVICE void finish(int r, float softmax_scale, float& inverse, float& lse) const {
    constexpr float kLn2 = 0.6931471805599453f;
    const float sum = sum_of_row(row_sum[r]);
    const bool empty = sum == 0.0f;
    inverse = empty ? 0.0f : reciprocal_approx(sum);
    lse = empty ? negative_infinity() : fmaf(row_max[r], softmax_scale, log2_approx(sum) * kLn2);
  }
};

}  // namespace attnforge
