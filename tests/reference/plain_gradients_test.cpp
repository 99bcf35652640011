// plain_gradients_test.cpp - the yardstick of gradients: sane sizes, the same problem as the
// oracle, and room for one rounding.
#include "tests/support/plain/gradients.h"
#include "tests/support/plain/limits.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>

#include "reference/compare/gradient_tolerance.h"
#include "reference/half.h"
#include "tests/support/arbitrary_problem.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using test::HostProblem;
using test::make_host_problem;

PlainGradientErrors errors_of(const std::string& text) {
  HostProblem host = make_host_problem(parse_problem(text), 1);
  const Tensors t = host.tensors();
  return plain_gradient_errors(host.problem, t, reference_gradients(host.problem, t, 1), {}, 1);
}

TEST(PlainGradients, ErrorsAreOfTheSizeOfTheRoundings) {
  const std::string sizes = " batch=1 num_heads=2:1 seqlen=24:40 head_dim=32 causal";
  const PlainGradientErrors fp32 = errors_of("bwd fp32" + sizes),
                            fp16 = errors_of("bwd fp16" + sizes),
                            bf16 = errors_of("bwd bf16" + sizes);
  for (const auto error :
       {&PlainGradientErrors::dq, &PlainGradientErrors::dk, &PlainGradientErrors::dv}) {
    EXPECT_GT(fp32.*error, 1e-9);
    EXPECT_LT(fp32.*error, 1e-5);
    EXPECT_GT(fp16.*error, 1e-4);
    EXPECT_LT(fp16.*error, 1e-2);
    EXPECT_GT(bf16.*error, 3 * fp16.*error);
    EXPECT_LT(bf16.*error, 0.1);
  }
}

TEST(PlainGradients, RowsThatSeeNothingAreExact) {
  const PlainGradientErrors none = errors_of("bwd bf16 num_heads=1 seqlen=4:0 head_dim=16");
  EXPECT_EQ(none.dq, 0);
  const PlainGradientErrors causal = errors_of(
      "bwd bf16 num_heads=1 seqlen=9:4 head_dim=16 causal");
  EXPECT_GT(causal.dq, 0);
  EXPECT_LT(causal.dq, 0.1);
}

TEST(PlainGradients, TheRuleLeavesRoomForOneRounding) {
  const Problem problem = parse_problem("bwd bf16 num_heads=1 seqlen=5:1 head_dim=16");
  const ReferenceGradient expected{.columns = 1, .values = {-2.0}, .terms = {{.sum = 1}}};
  const auto limit = [&](const Problem& p, double plain) {
    return plain_gradient_limit(p, GradientName::kDv, plain, expected);
  };
  EXPECT_GE(limit(problem, 0), 2.0 * unit_roundoff(DType::kBf16));
  EXPECT_LT(limit(problem, 0), 2.1 * unit_roundoff(DType::kBf16));
  EXPECT_NEAR(limit(problem, 0.5), 1.0, 0.01);
  Problem fp32 = problem;
  fp32.fp32_gradients = true;
  EXPECT_LT(limit(fp32, 0), 1e-5);
}

RC_GTEST_PROP(RandomGradients, TheYardstickIsOffByRoundingsAlone, ()) {
  const Problem problem = *test::arbitrary_backward_problem(
      {.batch_bits = 1, .heads_bits = 0, .seqlen_bits = 2});
  HostProblem host = make_host_problem(problem, 1);
  const Tensors tensors = host.tensors();
  const ReferenceGradients oracle = reference_gradients(problem, tensors, 1);
  const PlainGradientErrors errors = plain_gradient_errors(problem, tensors, oracle, {}, 1);
  double roundoff = problem.tf32 ? 0x1p-10 : 0x1p-23;
  for (const DType dtype : {problem.dtype_q, problem.dtype_k, problem.dtype_v, problem.dtype_o})
    roundoff = std::max(roundoff, unit_roundoff(dtype));
  const auto within = [&](double error, const ReferenceGradient& gradient) {
    double most = 0;  // a few roundings of each term, and of its score
    for (std::size_t i = 0; i < gradient.terms.size(); ++i) {
      const TermSizes& terms = gradient.terms[i];
      double largest = 0;
      for (int d = 0; d < gradient.columns; ++d)
        largest = std::max(largest,
                           std::abs(gradient.values[i * static_cast<std::size_t>(gradient.columns) +
                                                    static_cast<std::size_t>(d)]));
      most = std::max(most, largest + terms.sum + terms.by_score + 1e-3 * terms.factors);
    }
    RC_ASSERT(error <= 16 * roundoff * most);
  };
  within(errors.dq, oracle.dq);
  within(errors.dk, oracle.dk);
  within(errors.dv, oracle.dv);
}

}  // namespace
}  // namespace attnforge
