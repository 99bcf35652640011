// score.cuh - Score with a soft cap.
#pragma once

#include "base_params.h"
#include "pieces/plain_score.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/softmax.cuh"
#include "tile/tanh.cuh"

namespace attnforge {

/// s = softcap * tanh(s * softmax_scale / softcap), given back in units of 1 / softmax_scale so
/// that the softmax multiplies by the same factor whether there is a cap or not. Those units make
/// it s times tanh(x) / x: exact where the cap is far away, to 4e-7 everywhere.
struct SoftcapScore {
  static constexpr bool kScaled = false;
  static constexpr bool kSeries = true;
  template <class Scores>
  using Ahead = NothingAhead;

  float to_x;  // softmax_scale / softcap
  float unit;  // softcap / softmax_scale: the cap of s
  float softcap;

  ATTNFORGE_DEVICE explicit SoftcapScore(const FwdParams& p)
      : to_x(p.softcap_to_x),
        unit(reciprocal_approx(p.softcap_to_x)),
        softcap(p.softmax_scale * unit) {}

  /// Caps below this have probabilities where the series does not serve; 30 is the least in use.
  static constexpr float kLeastCap = 28.0f;

  /// Scores to exponents with the cap in them: two products more than without a cap, and nothing
  /// to look for in a tile but its maxima, which the softmax needs anyway. Scores far below the
  /// cap's range come out too low, and so do their probabilities, which are nothing by then: beside
  /// a maximum of an eighth of the cap below 0 or more, 6e-7 where the series is off by 1e-5 of the
  /// score, and e^-20 where it is off by its own size.
  struct Series {
    float near;                 // the largest score that it serves
    float least;                // the least maximum, in log2 units
    float first, third, fifth;  // of a score's powers, in log2 units

    ATTNFORGE_DEVICE Series(const SoftcapScore& score, float scale_log2)
        : near(kTanhNearest * score.unit),
          least(-0.125f * score.unit * scale_log2),
          first(scale_log2) {
      const float square = score.to_x * score.to_x;
      third = first * (kTanhFirst * square);
      fifth = first * (kTanhSecond * square * square);
      // Squares of squares of such units are finite, and a maximum is an ordinary number.
      if (!(score.to_x < 0x1p24f && score.to_x > 0x1p-24f && score.softcap > kLeastCap &&
            score.softcap <= 1024.0f))
        near = kLowestFloat;
    }
    ATTNFORGE_DEVICE float exponent(float s, float maximum) const {
      const float square = s * s;
      return fmaf(s, fmaf(square, fmaf(square, fifth, third), first), -maximum);
    }
    /// Whether it may not serve a row, for its largest score, or for the maximum so far.
    ATTNFORGE_DEVICE bool leaves(float top, float maximum) const {
      return top > near || maximum < least;
    }
    /// Scores to probabilities, as softmax.probabilities() makes them of capped scores. hidden: the
    /// mask hides some of the tile. replace() caps them, and hides.
    template <class Softmax, int kFragments, class Replace>
    ATTNFORGE_DEVICE bool probabilities(Softmax& softmax, float (&s)[kFragments][4],
                                        float scale_log2, bool hidden, const Replace& replace,
                                        float (&rescale)[2]) const {
      float top[2];
      bool leaves_it = false, grew = false;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = softmax.top_of(s, r);
        leaves_it |= softmax.base[r] != softmax.row_max[r] || leaves(top[r], softmax.row_max[r]);
        grew |= exponent(top[r], softmax.row_max[r]) > Softmax::kMostGrowth;
      }
      if (hidden || any_lane(leaves_it)) {
        replace();
        return softmax.probabilities(s, scale_log2, rescale);
      }
      const bool raised = any_lane(grew);
      if (raised) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          softmax.raise_to(r, exponent(quad_max(top[r]), 0.0f), rescale[r]);
          softmax.base[r] = softmax.row_max[r];
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r)
        softmax.exponentiate(s, r, [&](float x) { return exponent(x, softmax.row_max[r]); });
      return raised;
    }
  };

  /// The piece's interface: scores of a lane, and the QueryTile of their rows.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    SoftcapScore(tile.params.fwd).template cap<Scores::kCoarse>(scores.all);
  }

  ATTNFORGE_DEVICE float operator()(float s) const {
    const float within = clamp_magnitude(s, kTanhEnd * unit);
    const float x = within * to_x;
    return within * tanh_over_x(x * x);
  }

  /// All scores of an array; all lanes of a warp together, which take the short series where none
  /// of their scores is near the cap, and half of it where none is half as near. kCoarse:
  /// probabilities are rounded to 16 bits later, so near a cap of up to 1024 an error of 1.2e-4
  /// does no harm. A NaN stays one in every form.
  template <bool kCoarse, class T, int kCount>
  ATTNFORGE_DEVICE void cap(T (&s)[kCount]) const {
    if constexpr (kCoarse) {
      // Squares of squares of such units are finite. No reciprocal is waited for.
      const float square = to_x * to_x;
      if (to_x < 0x1p24f && to_x > 0x1p-24f && are_near(s, square)) {
        const float first = kTanhFirst * square, second = kTanhSecond * square * square;
        return for_each(s, [&](float& x) {
          const float x2 = x * x;
          x = fmaf(x * x2, fmaf(x2, second, first), x);
        });
      }
    }
    float top = 0.0f;
    for_each(s, [&](float& x) { top = fmaxf(top, fabsf(x)); });
    if (!any_lane(top > kTanhNear * unit))
      for_each(s, [&](float& x) { x = by_series(x); });
    else if (kCoarse && softcap <= 1024.0f)
      for_each(s, [&](float& x) { x = by_exponential(x); });
    else
      for_each(s, [&](float& x) { x = (*this)(x); });
  }

 private:
  /// Whether sums of squares of a few scores say that all of the warp's are at kTanhNearest or
  /// nearer. `unit` is the square of to_x. A maximum takes twice as long: it runs at half the rate,
  /// and each waits for the one before.
  template <class T, int kCount>
  ATTNFORGE_DEVICE static bool are_near(T (&s)[kCount], float unit) {
    float squares[4] = {};
    int i = 0;
    for_each(s, [&](float& x) {
      float& sum = squares[i++ % 4];
      sum = fmaf(x, x, sum);
    });
    const float most = fmaxf(fmaxf(squares[0], squares[1]), fmaxf(squares[2], squares[3]));
    return !any_lane(!(most * unit <= kTanhNearest * kTanhNearest));  // nor NaN
  }

  ATTNFORGE_DEVICE float by_series(float s) const {
    const float x = s * to_x, x2 = x * x;
    return fmaf(s * x2, tanh_series(x2), s);
  }
  /// tanh(x) = 1 - 2 / (exp(2x) + 1), to 1.2e-7 of the cap.
  ATTNFORGE_DEVICE float by_exponential(float s) const {
    constexpr float kTwoLog2e = 2.885390081777927f;
    const float e = exp2_approx(s * (to_x * kTwoLog2e));
    return fmaf(-2.0f * unit, reciprocal_approx(e + 1.0f), unit);
  }

  template <class T, int kCount, class Function>
  ATTNFORGE_DEVICE static void for_each(T (&s)[kCount], const Function& function) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) for_each(s[i], function);
  }
  template <class Function>
  ATTNFORGE_DEVICE static void for_each(float& s, const Function& function) {
    function(s);
  }
};

}  // namespace attnforge
