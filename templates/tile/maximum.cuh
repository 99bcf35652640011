// maximum.cuh - the maximum of a row of scores where it is not an ordinary number: no key seen yet,
// or so far from 0 that its rounding matters.
#pragma once

#include "ptx/special.cuh"

namespace attnforge {

/// The maximum of a row that has seen no key: no larger than any score, and finite. A hidden score
/// of -inf relative to it is -inf, not -inf minus -inf, and its exponential 0.
inline constexpr float kLowestFloat = -3.4028234663852886e38f;

/// Up to this magnitude of a maximum in log2 units, one fma takes a score to its exponent: the
/// rounding of the maximum is at most 2^-3, and a factor that all of a row shares. Beyond, where it
/// would reach the size of the exponents themselves, scores are rounded as the maximum was.
inline constexpr float kFarMaximum = 4194304.0f;

/// Not of a row that has seen no key: its neighbours are not to be rounded for that.
ATTNFORGE_DEVICE bool is_far(float maximum) {
  return fabsf(maximum) > kFarMaximum && maximum != kLowestFloat;
}

/// Score minus a maximum in log2 units, both rounded alike: 0 for the largest score. In units of
/// scores, for a loop that multiplies by scale_log2 later.
ATTNFORGE_DEVICE float relative_to_maximum(float score, float scale_log2, float maximum) {
  return __fsub_rn(__fmul_rn(score, scale_log2), maximum) * reciprocal_approx(scale_log2);
}

}  // namespace attnforge
