// tolerance.cpp - the table of tolerances, each line with its reason.
#include "reference/tolerance.h"

#include <algorithm>
#include <cmath>

#include "reference/factor_rows.h"
#include "reference/half.h"
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

// A score is a sum of head_dim products in fp32, multiplied by the scale, minus the maximum,
// through an exp2 that is good to 2 ulp. Tensor cores cut off where others round, a unit at most at
// each 16 products: where all have one sign, errors add up. All of it is relative to |q| |k|, and
// becomes the relative error of a probability.
double product_error(int head_dim) { return 0x1p-23 * std::max(4.0, head_dim / 16.0); }
double score_error(const Problem& problem) { return product_error(problem.head_dim); }

// A sum over n keys in fp32 is a random walk of roundings of its partial sums.
double walk_error(double terms) { return 1e-7 * (8.0 + std::sqrt(terms)); }
double sum_error(const Problem& problem) {
  return walk_error(static_cast<double>(problem.seqlen_kv));
}

// Of a number in TF32 (10 bits of mantissa): half a unit, and half as much again for kernels that
// round in one instruction instead of four.
constexpr double kTf32Roundoff = 0x1.8p-11;

// The scores of n products of TF32 numbers are off by roundings that are independent of each other:
// |q| |k| / sqrt(n) times two roundings, and 2 times that was never seen exceeded.
double tf32_product_error(int head_dim) {
  return 4 * kTf32Roundoff / std::sqrt(static_cast<double>(head_dim));
}
double tf32_score_error(const Problem& problem) { return tf32_product_error(problem.head_dim); }

}  // namespace

Tolerance output_tolerance(const Problem& problem, double max_abs_v) {
  const double p_roundoff = unit_roundoff(
      problem.dtype_v);  // probabilities are rounded to the other factor's dtype
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
  tolerance.atol = sum_error(problem) * max_abs_v;
  if (problem.tf32) {
    // As for a 16-bit dtype of v, but v itself is rounded too. The errors of the scores of
    // different keys are independent, and so is what they do to the output.
    tolerance.rtol += 2 * kTf32Roundoff;
    tolerance.spread_atol += 4 * kTf32Roundoff * max_abs_v;
    tolerance.spread_score_atol = tf32_score_error(problem) * max_abs_v;
  }
  // As probabilities that are off by their own roundings; twice, since they are relative to their
  // sum, and the row's keys share the errors of its q.
  tolerance.product_spread_atol = 2 * row_change_error(problem) * max_abs_v;
  // Below the smallest normal number fp16 has an absolute step instead of a relative one.
  if (problem.dtype_o == DType::kFp16 || problem.dtype_v == DType::kFp16) tolerance.atol += 0x1p-24;
  return tolerance;
}

Tolerance lse_tolerance(const Problem& problem) {
  Tolerance tolerance;
  // lse = maximum + log(sum): the errors of the scores and of the sum, and a few roundings of fp32
  // of its own.
  tolerance.score_atol = score_error(problem) + change_error(problem);
  tolerance.atol = sum_error(problem) + 1e-5;
  tolerance.rtol = 0x1p-21;
  if (problem.tf32) tolerance.score_atol += tf32_score_error(problem);
  tolerance.product_atol = row_change_error(problem);
  return tolerance;
}

double plain_rule_limit(const Problem& problem, double plain_error, double max_abs_output,
                        double score_magnitude) {
  // Plain attention may happen to be exact where there are few keys or few rows; a rounding more is
  // no mistake.
  const double roundoff = unit_roundoff(problem.dtype_o) + (problem.tf32 ? kTf32Roundoff : 0.0);
  const double score_roundoff = 0x1p-24 * score_magnitude;
  return 2 * plain_error + (roundoff + score_roundoff + sum_error(problem)) * max_abs_output;
}

namespace {

// The coarsest of the inputs: a product's factors are rounded to the dtype of one of them.
double input_roundoff(const Problem& problem) {
  double roundoff = problem.tf32 ? 2 * kTf32Roundoff : 0.0;  // of both factors
  for (const DType dtype : {problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o})
    roundoff = std::max(roundoff, unit_roundoff(dtype));
  return roundoff;
}

bool has_fp16(const Problem& problem) {
  return problem.dtype_q == DType::kFp16 || problem.dtype_k == DType::kFp16 ||
         problem.dtype_v == DType::kFp16 || problem.dtype_o == DType::kFp16;
}

DType dtype_of(const Problem& problem, GradientName name) {
  switch (name) {
    case GradientName::kDq:
      return gradient_dtype(problem, problem.dtype_q);
    case GradientName::kDk:
      return gradient_dtype(problem, problem.dtype_k);
    case GradientName::kDv:
      break;
    case GradientName::kDsinks:
    case GradientName::kDarg:
      return DType::kFp32;
  }
  return gradient_dtype(problem, problem.dtype_v);
}

}  // namespace

std::string_view to_string(GradientName name) {
  constexpr std::string_view kNames[] = {"dq", "dk", "dv", "dsinks", "darg"};
  return kNames[static_cast<int>(name)];
}

double allowed_error(const GradientTolerance& tolerance, double expected, const TermSizes& terms) {
  return tolerance.atol + tolerance.rtol * std::abs(expected) + tolerance.sum_rtol * terms.sum +
         tolerance.root_rtol * terms.root + tolerance.score_rtol * terms.by_score +
         tolerance.factors_atol * terms.factors;
}

GradientTolerance gradient_tolerance(const Problem& problem, GradientName name) {
  const DType dtype = dtype_of(problem, name);
  // Of dsinks all is in fp32: sums of head_dim_v products, then of all rows, and an lse that is
  // rounded again in base 2.
  if (name == GradientName::kDsinks)
    return {.atol = 0x1p-126,
            .rtol = 0x1p-22,
            .sum_rtol = walk_error(static_cast<double>(total_tokens(problem).q)) +
                        product_error(problem.head_dim_v),
            .score_rtol = 0x1p-22};
  // Weights are in fp32 too, and any number of pairs adds to an element, in any order.
  if (name == GradientName::kDarg) {
    const double pairs = static_cast<double>(total_tokens(problem).q * problem.num_heads_q) *
                         static_cast<double>(problem.seqlen_kv);
    return {.atol = 0x1p-126,
            .rtol = 0x1p-20,
            .sum_rtol = walk_error(pairs) + product_error(problem.head_dim_v),
            .score_rtol = score_error(problem) + 0x1p-20};
  }
  const double roundoff = input_roundoff(problem);
  const std::int64_t group = problem.num_heads_q / problem.num_heads_kv;
  GradientTolerance tolerance;
  // As in output_tolerance(): weights of the same value are rounded the same way, others
  // independently, by 0.4 of a roundoff in the root mean square. Three roundoffs were never seen
  // exceeded, and cover the worst case of up to 9 terms.
  tolerance.rtol = 2 * roundoff + unit_roundoff(dtype);
  tolerance.root_rtol = 3 * roundoff;
  // A weight ds is p times a difference, of a product in fp32 over head_dim_v and a sum that is as
  // long; what it is off by is relative to these, however near they are to each other.
  tolerance.sum_rtol = walk_error(static_cast<double>(name == GradientName::kDq
                                                          ? problem.seqlen_kv
                                                          : problem.seqlen_q * group)) +
                       product_error(problem.head_dim_v) + change_error(problem);
  // An error of a score is the relative error of p.
  tolerance.score_rtol = score_error(problem) + change_error(problem);
  if (problem.tf32) {
    tolerance.sum_rtol += tf32_product_error(problem.head_dim_v);
    tolerance.score_rtol += tf32_score_error(problem);
  }
  // Below the smallest normal number there is an absolute step instead of a relative one: of fp16
  // half of one for each weight, and one for the gradient; of others p, which a difference of at
  // most 2^16 multiplies, is 0.
  tolerance.factors_atol = has_fp16(problem) ? 0x1p-25 : 0x1p-110;
  tolerance.atol = dtype == DType::kFp16 ? 0x1p-24 : 0x1p-126;
  return tolerance;
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
