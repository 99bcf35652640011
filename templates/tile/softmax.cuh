// softmax.cuh - online softmax in base 2 over rows spread over the four lanes of a quad (Milakov
// and Gimelshein 2018; Dao et al. 2022).
#pragma once

#include "base.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"

namespace attnforge {

ATTNFORGE_DEVICE float quad_max(float x) {
  x = fmaxf(x, shuffle_xor<1>(x));
  return fmaxf(x, shuffle_xor<2>(x));
}

ATTNFORGE_DEVICE float quad_sum(float x) {
  x += shuffle_xor<1>(x);
  return x + shuffle_xor<2>(x);
}

/// State of the two rows of an mma fragment. row_max is in raw scores; row_sum is this lane's share
/// until finish().
struct SoftmaxRows {
  /// The maximum of a row that has seen no key. Finite: a hidden score of -inf relative to it is
  /// -inf, not -inf minus -inf, and its exponential 0. Any score of a key that is seen is above it.
  static constexpr float kNothingSeen = -1e30f;

  float row_max[2];
  float row_sum[2];

  ATTNFORGE_DEVICE SoftmaxRows() : row_max{kNothingSeen, kNothingSeen}, row_sum{0.0f, 0.0f} {}

  /// Raises the maxima to those of kFragments accumulator fragments, and gives in `rescale` what
  /// older sums and outputs are to be multiplied with. Lazy: as long as no row of the warp grew by
  /// more than 2^8 it keeps the old maxima and returns false, since numbers up to 256 are as exact
  /// in 16-bit floats as numbers up to 1. The answer is the same in all lanes.
  template <int kFragments>
  ATTNFORGE_DEVICE bool raise_max(const float (&s)[kFragments][4], float scale_log2,
                                  float (&rescale)[2]) {
    float top[2];
    bool grew = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = s[0][2 * r];
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
        top[r] = fmaxf(top[r], fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      grew |= (top[r] - row_max[r]) * scale_log2 >
              8.0f;  // of this lane's keys: some lane has the row's maximum
    }
    if (!any_lane(grew)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float old = row_max[r];
      row_max[r] = quad_max(fmaxf(top[r], old));
      rescale[r] = exp2_approx((old - row_max[r]) * scale_log2);
    }
    return true;
  }

  /// Scores to probabilities relative to the current maxima, and their sums.
  template <int kFragments>
  ATTNFORGE_DEVICE void exponentiate(float (&s)[kFragments][4], float scale_log2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shift = row_max[r] * scale_log2;
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; ++c) {
          s[j][c] = exp2_approx(fmaf(s[j][c], scale_log2, -shift));
          row_sum[r] += s[j][c];
        }
      }
    }
  }

  /// Sums of whole rows; `inverse` is 0 for a row that saw no key. Returns lse in natural logarithm
  /// through `lse`.
  ATTNFORGE_DEVICE void finish(float softmax_scale, float (&inverse)[2], float (&lse)[2]) {
    constexpr float kLn2 = 0.6931471805599453f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(row_sum[r]);
      const bool empty = sum == 0.0f;
      inverse[r] = empty ? 0.0f : reciprocal_approx(sum);
      lse[r] = empty ? negative_infinity()
                     : fmaf(row_max[r], softmax_scale, log2_approx(sum) * kLn2);
    }
  }
};

}  // namespace attnforge
