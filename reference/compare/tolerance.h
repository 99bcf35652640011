// tolerance.h - how far from the oracle a correct o or lse may be.
#pragma once

#include "attnforge/problem.h"

namespace attnforge {

/// |actual - expected| <= atol + rtol * |expected| + spread_atol * spread + score_atol *
/// score_magnitude + spread_score_atol * spread * score_magnitude + (product_atol +
/// product_spread_atol * spread) * product_magnitude, where spread and the magnitudes are the row's
/// (Reference).
struct Tolerance {
  double atol = 0;
  double rtol = 0;
  double spread_atol = 0;
  double score_atol = 0;
  double spread_score_atol = 0;
  double product_atol = 0;
  double product_spread_atol = 0;
};

double allowed_error(const Tolerance& tolerance, double expected, double spread,
                     double score_magnitude, double product_magnitude);

/// The tolerance of o, for kernels that hold scores and sums in fp32 and round rotated q and k to
/// their dtypes, probabilities to dtype_v and outputs to dtype_o; with tf32, for those that round
/// q, k, v and probabilities to TF32. `max_abs_v` is Reference::max_abs_v.
Tolerance output_tolerance(const Problem& problem, double max_abs_v);

/// The tolerance of lse, which is fp32 for every dtype.
Tolerance lse_tolerance(const Problem& problem);

}  // namespace attnforge
