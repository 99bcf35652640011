// roundings.h - what roundings do to the scores and sums of a correct kernel, for tolerances.
#pragma once

#include <algorithm>
#include <cmath>

#include "attnforge/problem.h"

namespace attnforge {

// A score is a sum of head_dim products in fp32, multiplied by the scale, minus the maximum,
// through an exp2 that is good to 2 ulp. Tensor cores cut off where others round, a unit at most at
// each 16 products: where all have one sign, errors add up. All of it is relative to |q| |k|, and
// becomes the relative error of a probability.
inline double product_error(int head_dim) { return 0x1p-23 * std::max(4.0, head_dim / 16.0); }

// Products of 8 bits are added up 32 at a time, in units of 2^-13 of the largest number among them
// and their sum so far.
inline double fp8_error(double terms) { return 0x1p-13 * std::max(2.0, terms / 32); }

inline double score_error(const Problem& problem) {
  return is_low_bit(problem.dtype_q) ? fp8_error(problem.head_dim)
                                     : product_error(problem.head_dim);
}

// A sum over n keys in fp32 is a random walk of roundings of its partial sums.
inline double walk_error(double terms) { return 1e-7 * (8.0 + std::sqrt(terms)); }
inline double sum_error(const Problem& problem) {
  return walk_error(static_cast<double>(problem.seqlen_kv));
}

// Sums of probabilities times v of 8 bits: of all keys, or of the most whose sum is not taken to
// one in fp32.
inline double fp8_sum_error(const Problem& problem) {
  constexpr double kMostKeys = 128;
  if (!is_low_bit(problem.dtype_q)) return 0;
  const auto keys = static_cast<double>(problem.seqlen_kv);
  return fp8_error(problem.fast_sums ? keys : std::min(keys, kMostKeys));
}

// Rounding of a number to TF32 (10 bits of mantissa): half a unit, and half as much again for
// kernels that round in one instruction instead of four.
inline constexpr double kTf32Roundoff = 0x1.8p-11;

// The scores of n products of TF32 numbers are off by roundings that are independent of each other:
// |q| |k| / sqrt(n) times two roundings, and 2 times that was never seen exceeded.
inline double tf32_product_error(int head_dim) {
  return 4 * kTf32Roundoff / std::sqrt(static_cast<double>(head_dim));
}
inline double tf32_score_error(const Problem& problem) {
  return tf32_product_error(problem.head_dim);
}

/// Kernels take q in 16 bits of its row's largest where k is of integers: what half a unit of each
/// of its elements does to a score, relative to |q| |k|, is four deviations of independent
/// roundings at most.
inline double digits_error(const Problem& problem) {
  const bool integers = is_low_bit(problem.dtype_k) && !format_of(problem.dtype_k).floating;
  return integers ? 4 / std::sqrt(3.0) * 0x1p-16 : 0;
}

}  // namespace attnforge
