// plain_test.cpp - the yardstick of low precision: sane sizes, and wide enough for kernels that do
// better than it.
#include "tests/support/plain/attention.h"
#include "tests/support/plain/limits.h"

#include <gtest/gtest.h>

#include <cmath>

#include "reference/compare/outputs.h"
#include "reference/compare/tolerance.h"
#include "reference/half.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

double plain_error(const std::string& text, test::Inputs inputs = test::Inputs::kNormal) {
  test::HostProblem host = test::make_host_problem(parse_problem(text), 1, inputs);
  const Tensors tensors = host.tensors();
  return plain_low_precision_error(host.problem, tensors,
                                   reference_attention(host.problem, tensors));
}

TEST(Plain, ErrorIsOfTheSizeOfTheRoundings) {
  const std::string sizes = " batch=1 num_heads=2:1 seqlen=64:128 head_dim=64 causal";
  const double fp32 = plain_error("fwd fp32" + sizes), fp16 = plain_error("fwd fp16" + sizes),
               bf16 = plain_error("fwd bf16" + sizes);
  EXPECT_GT(fp32, 1e-9);
  EXPECT_LT(fp32, 1e-5);
  EXPECT_GT(fp16, 1e-4);
  EXPECT_LT(fp16, 5e-3);
  EXPECT_GT(bf16, 3 * fp16);
  EXPECT_LT(bf16, 5e-2);
}

TEST(Plain, OneKeyIsExact) {
  EXPECT_EQ(plain_error("fwd bf16 batch=1 num_heads=1 seqlen=5:1 head_dim=16"), 0.0);
}

TEST(Plain, RowsThatSeeNothingCountForNothing) {
  const double error = plain_error("fwd fp16 batch=1 num_heads=1 seqlen=9:4 head_dim=16 causal");
  EXPECT_GT(error, 0.0);
  EXPECT_LT(error, 5e-3);
  EXPECT_EQ(plain_error("fwd fp16 batch=1 num_heads=1 seqlen=4:0 head_dim=16"), 0.0);
}

TEST(Plain, SoftcapIsApplied) {
  const std::string sizes = "fwd bf16 batch=1 num_heads=1 seqlen=32:64 head_dim=32 softcap=3";
  EXPECT_LT(plain_error(sizes, test::Inputs::kLarge), 0.3);
}

TEST(Plain, RuleLeavesRoomForOneRoundingEvenWherePlainIsExact) {
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=5:1 head_dim=16");
  EXPECT_GE(plain_rule_limit(problem, 0.0, 2.0, 10.0), 2.0 * unit_roundoff(DType::kBf16));
  EXPECT_LT(plain_rule_limit(problem, 0.0, 2.0, 10.0), 2.1 * unit_roundoff(DType::kBf16));
  EXPECT_NEAR(plain_rule_limit(problem, 0.5, 0.0, 10.0), 1.0, 1e-12);
}

}  // namespace
}  // namespace attnforge
