// tolerance.h - how far from the oracle a correct output may be: the one table of tolerances.
#pragma once

#include <string_view>

#include "attnforge/problem.h"
#include "reference/gradients.h"

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

/// Of o, for kernels that hold scores and sums in fp32 and round rotated q and k to their dtypes,
/// probabilities to dtype_v and outputs to dtype_o; with tf32, for those that round q, k, v and
/// probabilities to TF32. `max_abs_v` is Reference::max_abs_v.
Tolerance output_tolerance(const Problem& problem, double max_abs_v);

/// Of lse, which is fp32 for every dtype.
Tolerance lse_tolerance(const Problem& problem);

/// Of an element of dq, dk, dv, dsinks or the gradient of an array that a score reads: |actual -
/// expected| <= atol + rtol * |expected| + sum_rtol * sum + root_rtol * root + score_rtol *
/// by_score + factors_atol * factors, where the last four are the row's (TermSizes).
struct GradientTolerance {
  double atol = 0;
  double rtol = 0;
  double sum_rtol = 0;
  double root_rtol = 0;
  double score_rtol = 0;
  double factors_atol = 0;
};

enum class GradientName { kDq, kDk, kDv, kDsinks, kDarg };
std::string_view to_string(GradientName name);  // "dq", ..., "dsinks", "darg"

double allowed_error(const GradientTolerance& tolerance, double expected, const TermSizes& terms);

/// Of kernels that hold scores, differences and sums in fp32, take o and lse as they come, and
/// round p and ds to the dtypes of the inputs, and the gradients once, to theirs.
GradientTolerance gradient_tolerance(const Problem& problem, GradientName name);

/// The project's rule for gradients in any dtype, as plain_rule_limit(): twice the largest error of
/// plain attention's (plain_gradient_errors()), plus one rounding of the largest element and what
/// sums in fp32 may be off by in the row where they may most.
double plain_gradient_limit(const Problem& problem, GradientName name, double plain_error,
                            const ReferenceGradient& expected);

/// The project's rule for any dtype: the largest error may be twice that of a plain attention in
/// that dtype (plain_low_precision_error()), plus one rounding of the largest output and one, in
/// fp32, of the largest score: with few rows plain attention may be lucky in both.
/// `score_magnitude` is the largest of Reference::score_magnitude.
double plain_rule_limit(const Problem& problem, double plain_error, double max_abs_output,
                        double score_magnitude);

}  // namespace attnforge
