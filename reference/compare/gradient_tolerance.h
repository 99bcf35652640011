// gradient_tolerance.h - how far from the oracle a correct gradient may be.
#pragma once

#include <string_view>

#include "attnforge/problem.h"
#include "reference/gradients.h"

namespace attnforge {

/// The limit of an element of dq, dk, dv, dsinks or the gradient of an array that a score reads:
/// |actual - expected| <= atol + rtol * |expected| + sum_rtol * sum + root_rtol * root + score_rtol
/// * by_score + factors_atol * factors, where the last four are the row's (TermSizes).
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

/// The tolerance of kernels that hold scores, differences and sums in fp32, take o and lse as they
/// come, and round p and ds to the dtypes of the inputs, and the gradients once, to theirs.
GradientTolerance gradient_tolerance(const Problem& problem, GradientName name);

/// The project's rule for gradients in any dtype, as plain_rule_limit(): twice the largest error of
/// plain attention's (plain_gradient_errors()), plus one rounding of the largest element and what
/// sums in fp32 may be off by in the row where they may most.
double plain_gradient_limit(const Problem& problem, GradientName name, double plain_error,
                            const ReferenceGradient& expected);

}  // namespace attnforge
