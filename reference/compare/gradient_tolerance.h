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

/// That of a gradient.
DType dtype_of(const Problem& problem, GradientName name);

double allowed_error(const GradientTolerance& tolerance, double expected, const TermSizes& terms);

/// The tolerance of kernels that hold scores, differences and sums in fp32, take o and lse as they
/// come, and round p and ds to the dtypes of the inputs, and the gradients once, to theirs.
GradientTolerance gradient_tolerance(const Problem& problem, GradientName name);

}  // namespace attnforge
