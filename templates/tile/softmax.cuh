// softmax.cuh - online softmax in base 2 over rows spread over the four lanes of a quad (Milakov
// and Gimelshein 2018; Dao et al. 2022).
#pragma once

#include "base.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/maximum.cuh"

namespace attnforge {

ATTNFORGE_DEVICE float quad_max(float x) {
  x = fmaxf(x, shuffle_xor<1>(x));
  return fmaxf(x, shuffle_xor<2>(x));
}

ATTNFORGE_DEVICE float quad_sum(float x) {
  x += shuffle_xor<1>(x);
  return x + shuffle_xor<2>(x);
}

/// State of the two rows of an mma fragment. row_max is in log2 units, of scores times scale_log2;
/// row_sum is this lane's share until finish().
struct SoftmaxRows {
  float row_max[2];
  float row_sum[2];
  bool far;  // some row of the warp has a far maximum; the same in all lanes

  ATTNFORGE_DEVICE SoftmaxRows()
      : row_max{kLowestFloat, kLowestFloat}, row_sum{0.0f, 0.0f}, far(false) {}

  /// Scores of kFragments accumulator fragments to probabilities relative to the maxima, which are
  /// raised to them before. True if older outputs are to be multiplied with `rescale` (sums are
  /// done). Lazy: as long as no row of the warp grew by more than 2^8 it keeps the old maxima,
  /// since numbers up to 256 are as exact in 16-bit floats as numbers up to 1. The answer is the
  /// same in all lanes.
  template <int kFragments>
  ATTNFORGE_DEVICE bool probabilities(float (&s)[kFragments][4], float scale_log2,
                                      float (&rescale)[2]) {
    float top[2];
    bool grew = far;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = top_of(s, r);
      grew |= fmaf(top[r], scale_log2, -row_max[r]) > 8.0f;
    }
    const bool raised = any_lane(grew);
    if (raised) raise(s, top, scale_log2, rescale);
    exponentiate(s, [scale_log2](float x, float shift) { return fmaf(x, scale_log2, -shift); });
    return raised;
  }

  /// The same of scores that a series may raise to exponents together with a function of the
  /// Score's. hidden: the mask hides some of the tile. replace() applies the function, and hides.
  template <int kFragments, class Series, class Replace>
  ATTNFORGE_DEVICE bool probabilities_by_series(float (&s)[kFragments][4], float scale_log2,
                                                const Series& series, bool hidden,
                                                const Replace& replace, float (&rescale)[2]) {
    float top[2];
    bool leaves = far, grew = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      top[r] = top_of(s, r);
      leaves |= series.leaves(top[r], row_max[r]);
      grew |= series.exponent(top[r], row_max[r]) > 8.0f;
    }
    if (hidden || any_lane(leaves)) {
      replace();
      return probabilities(s, scale_log2, rescale);
    }
    const bool raised = any_lane(grew);
    if (raised) {
#pragma unroll
      for (int r = 0; r < 2; ++r) raise_row(r, series.exponent(quad_max(top[r]), 0.0f), rescale);
    }
    exponentiate(s, [&](float x, float shift) { return series.exponent(x, shift); });
    return raised;
  }

  /// Sums of whole rows; `inverse` is 0 for a row that saw no key. Returns lse in natural logarithm
  /// through `lse`.
  ATTNFORGE_DEVICE void finish(float (&inverse)[2], float (&lse)[2]) {
    constexpr float kLn2 = 0.6931471805599453f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = quad_sum(row_sum[r]);
      const bool empty = sum == 0.0f;
      inverse[r] = empty ? 0.0f : reciprocal_approx(sum);
      lse[r] = empty ? negative_infinity() : (row_max[r] + log2_approx(sum)) * kLn2;
    }
  }

 private:
  /// The largest of a lane's scores in row r. Some lane has the row's.
  template <int kFragments>
  ATTNFORGE_DEVICE static float top_of(const float (&s)[kFragments][4], int r) {
    float top = s[0][2 * r];
#pragma unroll
    for (int j = 0; j < kFragments; ++j) top = fmaxf(top, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
    return top;
  }

  ATTNFORGE_DEVICE void raise_row(int r, float to, float (&rescale)[2]) {
    const float old = row_max[r];
    row_max[r] = fmaxf(to, old);
    rescale[r] = exp2_approx(old - row_max[r]);
    row_sum[r] *= rescale[r];
  }

  template <int kFragments>
  ATTNFORGE_DEVICE void raise(float (&s)[kFragments][4], const float (&top)[2], float scale_log2,
                              float (&rescale)[2]) {
    bool is_far_row = false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      raise_row(r, quad_max(top[r]) * scale_log2, rescale);
      is_far_row |= is_far(row_max[r]);
    }
    far = any_lane(is_far_row);
    if (far) {
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c)
          s[j][c] = relative_to_maximum(s[j][c], scale_log2, row_max[c / 2]);
    }
  }

  /// Probabilities, and their sums. exponent(score, maximum) is in log2 units.
  template <int kFragments, class Exponent>
  ATTNFORGE_DEVICE void exponentiate(float (&s)[kFragments][4], const Exponent& exponent) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float shift = far ? 0.0f : row_max[r];
#pragma unroll
      for (int j = 0; j < kFragments; ++j) {
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; ++c) {
          s[j][c] = exp2_approx(exponent(s[j][c], shift));
          row_sum[r] += s[j][c];
        }
      }
    }
  }
};

}  // namespace attnforge
