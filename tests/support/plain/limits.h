// limits.h - how far from the oracle an output may be, by what a plain attention is off.
#pragma once

#include "attnforge/problem.h"
#include "reference/compare/gradient_tolerance.h"
#include "reference/gradients.h"

namespace attnforge {

/// The project's rule for any dtype: the largest error may be twice that of a plain attention in
/// that dtype (plain_low_precision_error()), plus one rounding of the largest output and one, in
/// fp32, of the largest score: with few rows plain attention may be lucky in both.
/// `score_magnitude` is the largest of Reference::score_magnitude.
double plain_rule_limit(const Problem& problem, double plain_error, double max_abs_output,
                        double score_magnitude);

/// The project's rule for gradients in any dtype, as plain_rule_limit(): twice the largest error of
/// plain attention's (plain_gradient_errors()), plus one rounding of the largest element and what
/// sums in fp32 may be off by in the row where they may most.
double plain_gradient_limit(const Problem& problem, GradientName name, double plain_error,
                            const ReferenceGradient& expected);

}  // namespace attnforge
