// of_shape.cuh - for kernels that look at one score at a time, the ladder's, which take no pieces
// from their entry: the walk, the mask and the score of a config's shape, and online softmax in
// base 2 of a row (Milakov and Gimelshein 2018).
#pragma once

#include "parts/softcap/score.cuh"
#include "pieces/range_walk.cuh"
#include "ptx/special.cuh"
#include "tile/maximum.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

/// Which tiles of keys a query tile sees.
template <auto C>
using WalkOf = RangeWalk<C.left_bound != 0>;

/// -inf where the row does not see the key.
template <auto C>
ATTNFORGE_DEVICE float masked_score(float s, int key, const VisibleKeys& visible) {
  return masked<C.left_bound != 0>(s, key, visible);
}

/// What becomes of a product of a query and a key before the mask, in units of 1 / softmax_scale.
template <auto C, bool kChanged = C.softcap != 0>
struct ScoreOf : SoftcapScore {
  using SoftcapScore::SoftcapScore;
  /// Changes all scores of an array, by all lanes of a warp, where probabilities are rounded to 16
  /// bits later.
  template <class T>
  ATTNFORGE_DEVICE void apply_coarse(T& scores) const {
    this->template cap<true>(scores);
  }
};
template <auto C>
struct ScoreOf<C, false> {
  ATTNFORGE_DEVICE explicit ScoreOf(const FwdParams&) {}
  ATTNFORGE_DEVICE float operator()(float s) const { return s; }
  template <class T>
  ATTNFORGE_DEVICE void apply_coarse(T&) const {}
};

/// row_max is in raw scores; row_sum is the sum of the probabilities that this thread made.
struct OnlineRow {
  float row_max = kLowestFloat;
  float row_sum = 0.0f;

  /// Raises the maximum to `top` and gives back what older outputs are to be multiplied with.
  ATTNFORGE_DEVICE float raise_max(float top, float scale_log2) {
    const float old = row_max;
    row_max = fmaxf(old, top);
    const float rescale = exp2_approx((old - row_max) * scale_log2);
    row_sum *= rescale;
    return rescale;
  }

  /// The probability of a score, relative to the current maximum; added to row_sum.
  ATTNFORGE_DEVICE float probability(float score, float scale_log2) {
    const float x = exp2_approx((score - row_max) * scale_log2);
    row_sum += x;
    return x;
  }

  /// From the sum of the whole row: 0 and -inf for a row that saw no key.
  ATTNFORGE_DEVICE float inverse_sum(float sum) const {
    return sum == 0.0f ? 0.0f : reciprocal_approx(sum);
  }
  /// Natural logarithm.
  ATTNFORGE_DEVICE float lse(float sum, float softmax_scale) const {
    constexpr float kLn2 = 0.6931471805599453f;
    return sum == 0.0f ? negative_infinity()
                       : fmaf(row_max, softmax_scale, log2_approx(sum) * kLn2);
  }
};

}  // namespace attnforge
