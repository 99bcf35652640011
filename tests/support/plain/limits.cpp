#include "tests/support/plain/limits.h"

#include <algorithm>
#include <cmath>

#include "reference/compare/roundings.h"
#include "reference/half.h"

namespace attnforge {

double plain_rule_limit(const Problem& problem, double plain_error, double max_abs_output,
                        double score_magnitude) {
  // Plain attention may happen to be exact where there are few keys or few rows; a rounding more is
  // no mistake.
  const double roundoff = unit_roundoff(problem.dtype_o) + (problem.tf32 ? kTf32Roundoff : 0.0);
  const double score_roundoff = 0x1p-24 * score_magnitude;
  return 2 * plain_error + (roundoff + score_roundoff + sum_error(problem)) * max_abs_output;
}

double plain_gradient_limit(const Problem& problem, GradientName name, double plain_error,
                            const ReferenceGradient& expected) {
  GradientTolerance fp32 = gradient_tolerance(problem, name);
  fp32.rtol = fp32.root_rtol = 0;
  double largest = 0, most = 0;
  for (const double x : expected.values) {
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  }
  for (const TermSizes& terms : expected.terms)
    most = std::max(most, allowed_error(fp32, 0, terms));
  const double roundoff = unit_roundoff(dtype_of(problem, name)) +
                          (problem.tf32 ? kTf32Roundoff : 0.0);
  return 2 * plain_error + roundoff * largest + most;
}

}  // namespace attnforge
