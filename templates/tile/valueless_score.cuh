// valueless_score.cuh - one more score of a finished row, which has no value.
#pragma once

#include "ptx/special.cuh"

namespace attnforge {

/// Counts `score` among those of a row whose maximum and sum are in `lse`, which is max + log(sum)
/// in natural logarithm and -inf for no score at all. Returns what the row's output is to be
/// multiplied with: sum / (sum + exp(score - max)). `score` may be -inf, which changes nothing. The
/// difference of the two is all that is rounded, so neither needs to be near 0.
ATTNFORGE_DEVICE float count_valueless(float& lse, float score) {
  constexpr float kLog2e = 1.4426950408889634f, kLn2 = 0.6931471805599453f;
  if (lse == negative_infinity()) {
    lse = score;
    return 0.0f;
  }
  const float smaller = exp2_approx(-fabsf(score - lse) * kLog2e);  // relative to the larger one
  const float both = 1.0f + smaller;
  const float kept = (score > lse ? smaller : 1.0f) * reciprocal_approx(both);
  lse = fmaxf(lse, score) + log2_approx(both) * kLn2;
  return kept;
}

}  // namespace attnforge
