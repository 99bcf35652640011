// softmax.cuh - online softmax in base 2 over rows spread over the four lanes of a quad (Milakov
// and Gimelshein 2018; Dao et al. 2022).
#pragma once

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

ATTNFORGE_DEVICE float scale_of_row(float scale, int) { return scale; }  // all rows'

/// State of the two rows of an mma fragment. row_max is in log2 units, of scores times scale_log2;
/// row_sum is this lane's share until finish().
///
/// Lazy: as long as no row of the warp grew by more than 2^8 the old maxima stay, since numbers up
/// to 256 are as exact in 16-bit floats as numbers up to 1. All lanes have the same answers.
///
/// kByBits: once no row's maximum is negative, the largest of three scores is found at a time, as
/// whole numbers of the same bits (sm_90). Of negative scores alone that is some, and none grew.
/// kRows: 1, the second row is not there.
///
/// kRaise: probabilities are 2^kRaise times as large, for formats of few exponents. Of e4m3, whose
/// largest number is 448, at most 2^8.75 again.
template <bool kByBits = false, int kRows = 2, int kRaise = 0>
struct SoftmaxRows {
  float row_max[2];
  float row_sum[2];
  float base[2];  // row_max - kRaise, or -inf: the row is to be raised with every tile
  bool positive;  // kByBits: no row of the warp has a negative maximum

  ATTNFORGE_DEVICE SoftmaxRows()
      : row_max{kLowestFloat, kLowestFloat},
        row_sum{0.0f, 0.0f},
        base{negative_infinity(), negative_infinity()},
        positive(false) {}

  /// Scores of kFragments accumulator fragments to probabilities relative to the maxima, which are
  /// raised to them before. True if older outputs are to be multiplied by `rescale` (sums are
  /// done).
  template <int kFragments, class Scale>
  ATTNFORGE_DEVICE bool probabilities(float (&s)[kFragments][4], Scale scale_log2,
                                      float (&rescale)[2]) {
    float shift[2] = {base[0], base[1]};
    float top[2];
    tops_of(s, top);
    const bool raised = any_lane(grows(0, top[0], scale_of_row(scale_log2, 0)) |
                                 (kRows == 2 && grows(1, top[1], scale_of_row(scale_log2, 1))));
    if (raised) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        raise(s, r, top[r], scale_of_row(scale_log2, r), shift[r], rescale[r]);
      if constexpr (kByBits) positive = !any_lane(fminf(row_max[0], row_max[1]) < 0.0f);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      exponentiate(s, r, [=](float x) { return fmaf(x, scale_of_row(scale_log2, r), -shift[r]); });
    return raised;
  }

  /// Probabilities, a row after the other: the exponentials of the first are computed while the
  /// maximum of the second is found. settle(raised, rescale) is called before those of the second.
  template <int kFragments, class Scale, class Settle>
  ATTNFORGE_DEVICE void probabilities_by_rows(float (&s)[kFragments][4], Scale scale_log2,
                                              const Settle& settle) {
    bool raised = false;
    float rescale[2] = {1.0f, 1.0f};
    float most = kMostGrowth;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float top = top_of(s, r), of_row = scale_of_row(scale_log2, r);
      float shift = base[r];
      if (any_lane(grows(r, top, of_row, most))) {
        raised = true;
        raise(s, r, top, of_row, shift, rescale[r]);
      }
      if (r == 1) settle(raised, rescale);
      const float sum = exponentiate(s, r, [=](float x) { return fmaf(x, of_row, -shift); });
      // kMostGrowth, which is there no sooner than the sum: else ptxas puts all of the second
      // maximum before the exponentials, as a branch waits for it.
      most = fmaf(sum, 0.0f, kMostGrowth);
    }
  }

  /// Sums of whole rows; `inverse` is 0 for a row that saw no key. Returns lse in natural logarithm
  /// through `lse`.
  ATTNFORGE_DEVICE void finish(float (&inverse)[2], float (&lse)[2]) {
    constexpr float kLn2 = 0.6931471805599453f;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = quad_sum(row_sum[r]);
      const bool empty = sum == 0.0f;
      inverse[r] = empty ? 0.0f : reciprocal_approx(sum);
      lse[r] = empty ? negative_infinity() : (raised_max(r) + log2_approx(sum)) * kLn2;
    }
  }

  // ---- Steps of these, which a Score with a series of its own takes too ----

  static constexpr float kMostGrowth = kRaise == 0 ? 8.0f : float(kRaise) + 2.75f;

  /// What goes from exponents of probabilities that are 2^kRaise times as large.
  ATTNFORGE_DEVICE float raised_max(int r) const {
    if constexpr (kRaise == 0)
      return row_max[r];
    else
      return row_max[r] - float(kRaise);
  }

  /// The largest of a lane's scores in row r. Some lane has the row's.
  template <int kFragments>
  ATTNFORGE_DEVICE static float top_of(const float (&s)[kFragments][4], int r) {
    float top[2] = {s[0][2 * r], s[0][2 * r + 1]};  // two, as each waits for the one before
#pragma unroll
    for (int j = 1; j < kFragments; ++j)
      top[j % 2] = fmaxf(top[j % 2], fmaxf(s[j][2 * r], s[j][2 * r + 1]));
    return fmaxf(top[0], top[1]);
  }
  template <int kFragments>
  ATTNFORGE_DEVICE static float top_by_bits(const float (&s)[kFragments][4], int r) {
    int top[2] = {__float_as_int(s[0][2 * r]), __float_as_int(s[0][2 * r + 1])};
#pragma unroll
    for (int j = 1; j < kFragments; ++j)
      top[j % 2] = max(top[j % 2],
                       max(__float_as_int(s[j][2 * r]), __float_as_int(s[j][2 * r + 1])));
    return __int_as_float(max(top[0], top[1]));
  }
  template <int kFragments>
  ATTNFORGE_DEVICE void tops_of(const float (&s)[kFragments][4], float (&top)[2]) const {
    if (kByBits && positive) {
      top[0] = top_by_bits(s, 0), top[1] = top_by_bits(s, 1);
    } else {
      top[0] = top_of(s, 0);
      if constexpr (kRows == 2) top[1] = top_of(s, 1);
    }
  }

  /// Whether this lane's part of a row grew too much. NaN: -inf relative to -inf.
  ATTNFORGE_DEVICE bool grows(int r, float top, float scale_log2, float most = kMostGrowth) const {
    return !(fmaf(top, scale_log2, -base[r]) <= most);
  }

  ATTNFORGE_DEVICE void raise_to(int r, float maximum, float& rescale) {
    const float old = row_max[r];
    row_max[r] = fmaxf(maximum, old);
    rescale = exp2_approx(old - row_max[r]);
    row_sum[r] *= rescale;
  }
  /// Raises a row to its largest score in the tile. `shift` is then what goes from exponents.
  template <int kFragments>
  ATTNFORGE_DEVICE void raise(float (&s)[kFragments][4], int r, float top, float scale_log2,
                              float& shift, float& rescale) {
    raise_to(r, quad_max(top) * scale_log2, rescale);
    shift = raised_max(r);
    base[r] = raised_max(r);
    if (any_lane(is_far(row_max[r]))) {
      shift = kRaise == 0 ? 0.0f : -float(kRaise);
      base[r] = negative_infinity();
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
#pragma unroll
        for (int c = 2 * r; c < 2 * r + 2; ++c)
          s[j][c] = relative_to_maximum(s[j][c], scale_log2, row_max[r]);
    }
  }

  /// Probabilities of a row, added up in row_sum. Returns what that was after two thirds of them.
  /// exponent(score) is in log2 units.
  template <int kFragments, class Exponent>
  ATTNFORGE_DEVICE float exponentiate(float (&s)[kFragments][4], int r, const Exponent& exponent) {
    float most_of_sum = 0.0f;
#pragma unroll
    for (int j = 0; j < kFragments; ++j) {
#pragma unroll
      for (int c = 2 * r; c < 2 * r + 2; ++c) {
        s[j][c] = exp2_approx(exponent(s[j][c]));
        row_sum[r] += s[j][c];
      }
      if (j == kFragments * 5 / 8) most_of_sum = row_sum[r];
    }
    return most_of_sum;
  }
};

}  // namespace attnforge
