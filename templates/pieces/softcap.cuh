// softcap.cuh - Score with a soft cap.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// s = softcap * tanh(s * softmax_scale / softcap), given back in units of 1 / softmax_scale so
/// that the softmax multiplies by the same factor whether there is a cap or not. Those units make
/// it s times tanh(x) / x: exact where the cap is far away, to 4e-7 everywhere.
struct SoftcapScore {
  static constexpr bool kScaled = false;

  float softcap;
  float to_x;  // softmax_scale / softcap
  float unit;  // softcap / softmax_scale: the cap of s

  ATTNFORGE_DEVICE explicit SoftcapScore(const FwdParams& p)
      : softcap(p.softcap),
        to_x(p.softmax_scale * reciprocal_approx(p.softcap)),
        unit(p.softcap * reciprocal_approx(p.softmax_scale)) {}

  /// The piece's interface: scores of a lane, and the QueryTile of their rows.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    SoftcapScore(tile.p).template cap<Scores::kCoarse>(scores.all);
  }

  ATTNFORGE_DEVICE float operator()(float s) const {
    const float within = clamp_magnitude(s, kTanhEnd * unit);
    const float x = within * to_x;
    return within * tanh_over_x(x * x);
  }

  /// All scores of an array; all lanes of a warp together, which take the short series where none
  /// of their scores is near the cap, and half of it where none is half as near. kCoarse: probabilities are rounded to 16 bits later, so near
  /// a cap of up to 1024 an error of 1.2e-4 does no harm. A NaN stays one in every form.
  template <bool kCoarse, class T, int kCount>
  ATTNFORGE_DEVICE void cap(T (&s)[kCount]) const {
    float top = 0.0f;
    for_each(s, [&](float& x) { top = fmaxf(top, fabsf(x)); });
    // Squares of squares of such units are finite.
    const bool usual = kCoarse && unit < 0x1p24f && unit > 0x1p-24f;
    if (usual && !any_lane(top > kTanhNearest * unit)) {
      const float first = kTanhFirst * to_x * to_x, second = kTanhSecond * to_x * to_x * to_x * to_x;
      for_each(s, [&](float& x) {
        const float square = x * x;
        x = fmaf(x * square, fmaf(square, second, first), x);
      });
    } else if (!any_lane(top > kTanhNear * unit))
      for_each(s, [&](float& x) { x = by_series(x); });
    else if (kCoarse && softcap <= 1024.0f)
      for_each(s, [&](float& x) { x = by_exponential(x); });
    else
      for_each(s, [&](float& x) { x = (*this)(x); });
  }

 private:
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
