// tolerance.cpp - tolerances of outputs, each line with its reason.
#include "reference/compare/tolerance.h"

#include <algorithm>
#include <cmath>

#include "reference/compare/roundings.h"
#include "reference/half.h"
#include "reference/parts/rope.h"
#include "reference/parts/scales.h"
#include "reference/score.h"

namespace attnforge {

double allowed_error(const Tolerance& tolerance, double expected, double spread,
                     double score_magnitude, double product_magnitude) {
  return tolerance.atol + tolerance.rtol * std::abs(expected) + tolerance.spread_atol * spread +
         tolerance.score_atol * score_magnitude +
         tolerance.spread_score_atol * spread * score_magnitude +
         (tolerance.product_atol + tolerance.product_spread_atol * spread) * product_magnitude;
}

namespace {

/// To which probabilities are rounded: the other factor's dtype, weights of a merge to none. v of
/// fewer bits than q is widened to fp16, or to q's dtype.
DType dtype_of_weights(const Problem& problem) {
  if (!is_attention(problem)) return DType::kFp32;
  if (is_low_bit(problem.dtype_q)) return problem.dtype_v;
  if (may_be_widened(problem)) return problem.dtype_q;
  return is_low_bit(problem.dtype_v) ? DType::kFp16 : problem.dtype_v;
}

}  // namespace

Tolerance output_tolerance(const Problem& problem, double max_abs_v) {
  const DType p_dtype = dtype_of_weights(problem);
  const double p_roundoff = unit_roundoff(p_dtype);
  const double o_roundoff = unit_roundoff(problem.dtype_o);
  Tolerance tolerance;
  // Probabilities of the same value are rounded the same way, and then all of the output is off by
  // as much; twice, since a kernel may sum them before or after the rounding. The output is rounded
  // once more.
  tolerance.rtol = 2 * p_roundoff + o_roundoff;
  // Different ones are rounded independently: the error of the output is p_roundoff |v| times the
  // spread, on average half of it; 4 times the average was never seen exceeded, and covers the
  // worst case of up to 4 keys.
  tolerance.spread_atol = 2 * p_roundoff * max_abs_v;
  tolerance.score_atol = (score_error(problem) + change_error(problem)) * max_abs_v;
  tolerance.atol = (sum_error(problem) + fp8_sum_error(problem)) * max_abs_v;
  if (problem.tf32) {
    // TF32 is as a 16-bit dtype of v, but v itself is rounded too. The errors of the scores of
    // different keys are independent, and so is what they do to the output.
    tolerance.rtol += 2 * kTf32Roundoff;
    tolerance.spread_atol += 4 * kTf32Roundoff * max_abs_v;
    tolerance.spread_score_atol = tf32_score_error(problem) * max_abs_v;
  }
  if (may_be_widened(problem) && is_low_bit(problem.dtype_v)) {
    // v is rounded as probabilities are, and the same values the same way.
    tolerance.rtol += p_roundoff;
    tolerance.spread_atol += 2 * p_roundoff * max_abs_v;
  }
  tolerance.spread_score_atol += digits_error(problem) * max_abs_v;
  // Probabilities are off as by their own roundings; twice, since they are relative to their sum,
  // and the row's keys share the errors of its q.
  tolerance.product_spread_atol = 2 * row_change_error(problem) * max_abs_v;
  // Below the smallest normal number a format has an absolute step instead of a relative one.
  // Of fp16 and v of fewer bits so has each of as many weights as there are keys, of either sign.
  // Probabilities of e4m3 are raised by 2^6, to a step of 2^-15 of the row's largest.
  double p_step = format_of(p_dtype).step;
  if (is_low_bit(problem.dtype_v))
    p_step = (is_low_bit(problem.dtype_q) ? 0x1p-15 : 0x1p-24) * max_abs_v *
             std::sqrt(static_cast<double>(problem.seqlen_kv));
  tolerance.atol += std::max(format_of(problem.dtype_o).step, p_step);
  return tolerance;
}

Tolerance lse_tolerance(const Problem& problem) {
  Tolerance tolerance;
  // lse = maximum + log(sum): the errors of the scores and of the sum, and a few roundings of fp32
  // of its own.
  tolerance.score_atol = score_error(problem) + change_error(problem) + digits_error(problem);
  tolerance.atol = sum_error(problem) + 1e-5;
  tolerance.rtol = 0x1p-21;
  if (problem.tf32) tolerance.score_atol += tf32_score_error(problem);
  tolerance.product_atol = row_change_error(problem);
  // All keys of a row may be off alike: each of few numbers is rounded one way.
  if (may_be_widened(problem) && is_low_bit(problem.dtype_k))
    tolerance.score_atol += unit_roundoff(problem.dtype_q);
  return tolerance;
}

}  // namespace attnforge
