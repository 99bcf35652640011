// gradient_tolerance.cpp - tolerances of gradients, each line with its reason.
#include "reference/compare/gradient_tolerance.h"

#include <algorithm>
#include <cmath>

#include "reference/compare/roundings.h"
#include "reference/half.h"
#include "reference/score.h"

namespace attnforge {
namespace {

// The coarsest of the inputs: a product's factors are rounded to the dtype of one of them.
double input_roundoff(const Problem& problem) {
  double roundoff = problem.tf32 ? 2 * kTf32Roundoff : 0.0;  // of both factors
  for (const DType dtype : {problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o})
    roundoff = std::max(roundoff, unit_roundoff(dtype));
  return roundoff;
}

/// The largest of the inputs' absolute steps, which they have below their smallest normal numbers.
double input_step(const Problem& problem) {
  double step = 0;
  for (const DType dtype : {problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o})
    step = std::max(step, format_of(dtype).step);
  return step;
}

}  // namespace

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
  // dsinks are all in fp32: sums of head_dim_v products, then of all rows, and an lse that is
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
  // Roundings are as in output_tolerance(): weights of the same value are rounded the same way,
  // others independently, by 0.4 of a roundoff in the root mean square. Three roundoffs were never
  // seen exceeded, and cover the worst case of up to 9 terms.
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
  // Half of an absolute step for each weight, p or ds, and one for the gradient; kernels take fp32
  // numbers below the smallest normal one for 0, and p is multiplied by a difference of at most
  // 2^16.
  tolerance.factors_atol = std::max(input_step(problem) / 2, 0x1p-110);
  tolerance.atol = std::max(format_of(dtype).step, 0x1p-126);
  return tolerance;
}

}  // namespace attnforge
