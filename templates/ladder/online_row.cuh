// online_row.cuh - online softmax in base 2 of one query row on CUDA cores (Milakov and Gimelshein
// 2018). The counterpart of softmax.cuh, whose rows lie in mma fragments.
#pragma once

#include "base.cuh"
#include "ptx/special.cuh"
#include "tile/maximum.cuh"

namespace attnforge {

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
