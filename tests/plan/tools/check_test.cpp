// check_test.cpp - outputs held against the CPU reference: right ones pass, each kind of wrong one
// is found and located.
#include "attnforge/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"
#include "reference/half.h"

namespace attnforge {
namespace {

/// Random inputs and the outputs that the reference gives for them, rounded to the problem's
/// dtypes.
HostTensors solved(const Problem& problem, std::uint64_t seed = 1) {
  HostTensors host = random_host_tensors(problem, seed);
  solve_on_cpu(problem, host);
  return host;
}

Problem small() {
  return parse_problem("fwd bf16 batch=2 num_heads=4:2 seqlen=70:90 head_dim=32 causal lse");
}

TEST(CheckOutput, ARightOutputPassesInEveryLayout) {
  for (const char* layout : {"bshd", "bhsd"}) {
    const Problem problem = parse_problem(to_string(small()) + " layout=" + layout);
    const CheckReport report = check_output(problem, solved(problem));
    EXPECT_TRUE(report.ok) << report.summary;
    EXPECT_EQ(report.rows_checked, 2 * 4 * 70);
    EXPECT_FALSE(report.sampled());
    EXPECT_GT(report.cosine_similarity, 0.9999);
    EXPECT_GT(report.max_error, 0) << "bf16 cannot hold the reference exactly";
  }
  const Problem packed = parse_problem(
      "fwd fp16 num_heads=4:2 seqlen=70 head_dim=32 layout=packed_qkv");
  EXPECT_TRUE(check_output(packed, solved(packed)).ok);
}

/// With o and lse of the forward problem, so that gradients mean something.
HostTensors solved_backward(const Problem& problem) {
  HostTensors host = random_host_tensors(problem, 1), of_forward = host;
  solve_on_cpu(forward_of(problem), of_forward);
  host.o = of_forward.o;
  host.lse = of_forward.lse;
  solve_on_cpu(problem, host);
  return host;
}

TEST(CheckOutput, RightGradientsPassAndAWrongOneIsLocated) {
  const Problem problem = parse_problem(
      "bwd bf16 batch=2 num_heads=4:2 seqlen=70:90 head_dim=32 causal");
  HostTensors host = solved_backward(problem);
  const CheckReport right = check_output(problem, host);
  EXPECT_TRUE(right.ok) << right.summary;
  EXPECT_EQ(right.rows_checked, 2 * (4 * 70 + 2 * 90));
  EXPECT_FALSE(right.sampled());
  EXPECT_GT(right.max_error, 0) << "bf16 cannot hold the reference exactly";
  const CheckReport sampled = check_output(problem, host, {.max_work = 1e5});
  EXPECT_TRUE(sampled.ok && sampled.sampled()) << sampled.summary;

  const std::int64_t at = ((1 * 90 + 33) * 2 + 1) * 32 + 5;  // batch 1, key 33, head 1, dim 5
  store_element(DType::kBf16, host.dk.data(), at, 99.0f);
  const CheckReport wrong = check_output(problem, host);
  EXPECT_EQ(wrong.wrong, 1);
  EXPECT_EQ(wrong.tensor, "dk");
  EXPECT_EQ(wrong.worst.batch, 1);
  EXPECT_EQ(wrong.worst.row, 33);
  EXPECT_EQ(wrong.worst.head, 1);
  EXPECT_EQ(wrong.worst.dim, 5);
}

TEST(CheckOutput, OneWrongElementIsLocated) {
  const Problem problem = small();
  HostTensors host = solved(problem);
  const std::int64_t at = ((1 * 70 + 33) * 4 + 2) * 32 + 5;  // batch 1, row 33, head 2, dim 5
  const float right = load_element(DType::kBf16, host.o.data(), at) > 0 ? 1.0f : -1.0f;
  store_element(DType::kBf16, host.o.data(), at, -3 * right);
  const CheckReport report = check_output(problem, host);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.wrong, 1);
  EXPECT_EQ(report.worst.batch, 1);
  EXPECT_EQ(report.worst.row, 33);
  EXPECT_EQ(report.worst.head, 2);
  EXPECT_EQ(report.worst.dim, 5);
  EXPECT_FLOAT_EQ(static_cast<float>(report.worst.got), -3 * right);
  EXPECT_GT(std::abs(report.worst.got - report.worst.expected), report.worst.allowed);
}

TEST(CheckOutput, AnOutputThatNobodyWroteIsWrong) {
  const Problem problem = small();
  const CheckReport report = check_output(problem, random_host_tensors(problem, 1));
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.nonfinite_wrong, 2 * 4 * 70 * 32 + 2 * 4 * 70) << "o and lse";
}

TEST(CheckOutput, AWrongLseIsFound) {
  const Problem problem = small();
  HostTensors host = solved(problem);
  host.lse[(1 * 4 + 3) * 70 + 7] += 1.0f;
  const CheckReport report = check_output(problem, host);
  EXPECT_FALSE(report.ok);
  EXPECT_EQ(report.worst_lse.batch, 1);
  EXPECT_EQ(report.worst_lse.head, 3);
  EXPECT_EQ(report.worst_lse.row, 7);
  EXPECT_NEAR(report.max_lse_error, 1.0, 1e-3);
}

TEST(CheckOutput, LargeProblemsAreSampledAtBothEndsOfEachHead) {
  const Problem problem = parse_problem("fwd fp32 num_heads=4 seqlen=500 head_dim=8");
  HostTensors host = solved(problem);
  CheckOptions options;
  options.max_work = flops(problem) / 2 / 20;  // one row of twenty
  const CheckReport report = check_output(problem, host, options);
  EXPECT_TRUE(report.ok) << report.summary;
  EXPECT_TRUE(report.sampled());
  EXPECT_EQ(report.rows_total, 4 * 500);
  EXPECT_GE(report.rows_checked, 4 * 10);
  EXPECT_LE(report.rows_checked, 4 * 25);

  for (std::int64_t row : {0, 499}) {
    HostTensors wrong = host;
    store_element(DType::kFp32, wrong.o.data(), (row * 4 + 3) * 8, 100.0f);
    EXPECT_FALSE(check_output(problem, wrong, options).ok) << "row " << row;
  }
  options.max_work = 0;
  EXPECT_FALSE(check_output(problem, host, options).sampled());
}

TEST(CheckOutput, EvenTheSmallestBudgetChecksSomething) {
  const Problem problem = parse_problem("fwd fp32 batch=3 num_heads=5 seqlen=64 head_dim=8");
  CheckOptions options;
  options.max_work = 1;
  EXPECT_EQ(check_output(problem, solved(problem), options).rows_checked, 1);
}

TEST(CheckOutput, NothingToCompute) {
  const Problem problem = parse_problem("fwd seqlen=0:16");
  const CheckReport report = check_output(problem, random_host_tensors(problem, 1));
  EXPECT_TRUE(report.ok);
  EXPECT_EQ(report.rows_total, 0);
}

TEST(CheckOutput, SizesMustBeTheProblems) {
  HostTensors host = random_host_tensors(small(), 1);
  host.k.pop_back();
  try {
    check_output(small(), host);
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("host tensor k"));
  }
}

TEST(RandomHostTensors, HaveMeanZeroAndVarianceOneAndAreTheSeeds) {
  const Problem problem = parse_problem("fwd fp32 num_heads=4 seqlen=4096 head_dim=8");
  const HostTensors host = random_host_tensors(problem, 5);
  const std::size_t count = host.q.size() / 4;
  std::vector<float> q(count), k(count);
  values_to_float(DType::kFp32, host.q.data(), count, q.data());
  values_to_float(DType::kFp32, host.k.data(), count, k.data());
  double sum = 0, squares = 0, product = 0;
  for (std::size_t i = 0; i < count; ++i) {
    sum += q[i];
    squares += q[i] * q[i];
    product += q[i] * k[i];
  }
  const double n = static_cast<double>(count);
  EXPECT_NEAR(sum / n, 0, 0.02);
  EXPECT_NEAR(squares / n, 1, 0.02);
  EXPECT_NEAR(product / n, 0, 0.02) << "q and k are independent";
  EXPECT_EQ(random_host_tensors(problem, 5).q, host.q);
  EXPECT_NE(random_host_tensors(problem, 6).q, host.q);
}

TEST(SolveOnCpu, WritesEveryElementOfTheReference) {
  for (const char* text : {"fwd bf16 batch=2 num_heads=4:2 seqlen=70:90 head_dim=32 causal lse",
                           "fwd fp16 num_heads=2 seqlen=5:3 head_dim=16 causal layout=bhsd",
                           "fwd fp32 num_heads=2 seqlen=9 head_dim=24:8 lse"}) {
    const Problem problem = parse_problem(text);
    HostTensors host = random_host_tensors(problem, 1);
    solve_on_cpu(problem, host);
    const HostTensors expected = solved(problem);
    EXPECT_EQ(host.o, expected.o) << text;
    EXPECT_EQ(host.lse, expected.lse) << text;
  }
}

TEST(SolveOnCpu, RefusesTensorsOfAnotherProblem) {
  HostTensors host = random_host_tensors(small(), 1);
  EXPECT_THROW(solve_on_cpu(parse_problem("fwd bf16 seqlen=8 head_dim=32"), host), Error);
}

TEST(SolveOnCpu, OfABlockMaskPassesItsOwnCheckAndABrokenOneIsRefused) {
  for (const char* text :
       {"fwd bf16 batch=2 num_heads=4:2 seqlen=70:90 head_dim=16 blocks=32:16 mask_heads=2 causal",
        "fwd fp16 batch=3 num_heads=2 seqlen=60 head_dim=16 lengths=used lse blocks=16 mask_bits "
        "mask_batch=3 density=0.2"}) {
    SCOPED_TRACE(text);
    const Problem problem = parse_problem(text);
    HostTensors host = random_host_tensors(problem, 3);
    EXPECT_EQ(block_mask_of(problem, host),
              block_mask_of(problem, random_host_tensors(problem, 3)));
    EXPECT_NE(block_mask_of(problem, host),
              block_mask_of(problem, random_host_tensors(problem, 4)));
    solve_on_cpu(problem, host);
    const CheckReport report = check_output(problem, host);
    EXPECT_TRUE(report.ok) << report.summary;
    EXPECT_EQ(report.rows_checked, report.rows_total);
    host.mask_columns[0] = 1000;
    EXPECT_THROW(check_output(problem, host), Error);
  }
}

TEST(SolveOnCpu, OfSequencesOfAnyLengthPassesItsOwnCheck) {
  for (const char* text :
       {"fwd bf16 batch=4 num_heads=4:2 seqlen=20:33 tokens=50:70 head_dim=16 lengths=packed "
        "causal lse",
        "fwd fp16 batch=3 num_heads=2 seqlen=20:33 head_dim=16 lengths=used lse layout=bhsd"}) {
    SCOPED_TRACE(text);
    const Problem problem = parse_problem(text);
    HostTensors host = random_host_tensors(problem, 3);
    solve_on_cpu(problem, host);
    const CheckReport report = check_output(problem, host);
    EXPECT_TRUE(report.ok) << report.summary;
    EXPECT_EQ(report.rows_checked, report.rows_total);
    host.lengths_kv[1] = 1000;
    EXPECT_THROW(check_output(problem, host), Error);
  }
}

TEST(SolveOnCpu, OfACacheInPagesPassesItsOwnCheckAndABrokenTableIsRefused) {
  for (const char* text :
       {"fwd bf16 batch=4 num_heads=4:2 seqlen=3:70 head_dim=16:24 lengths=used page_size=16 "
        "causal "
        "lse",
        "fwd fp16 batch=4 num_heads=2 seqlen=20:70 tokens=50:0 head_dim=16 lengths=packed "
        "page_size=24 layout=bhsd"}) {
    SCOPED_TRACE(text);
    const Problem problem = parse_problem(text);
    HostTensors host = random_host_tensors(problem, 3);
    solve_on_cpu(problem, host);
    const CheckReport report = check_output(problem, host);
    EXPECT_TRUE(report.ok) << report.summary;
    EXPECT_EQ(report.rows_checked, report.rows_total);
    HostTensors broken = host;
    broken.page_table[0] = static_cast<int>(pages_of_pool(problem));
    EXPECT_THROW(check_output(problem, broken), Error);
    broken = host;
    broken.v.resize(broken.v.size() / 2);
    EXPECT_THROW(check_output(problem, broken), Error) << "fewer pages than k";
    broken.k.clear();
    broken.v.clear();
    EXPECT_THROW(check_output(problem, broken), Error) << "pools without pages";
  }
}

}  // namespace
}  // namespace attnforge
