// far_scores_test.cpp - any score that is a finite float counts as what it is: at magnitudes where
// its rounding is larger than all differences that matter, and down to the smallest float, with
// which a row without keys could be confused. Soft caps are as exact where they are far away.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

/// Writes `value(row)` into one column of all heads and batches of q or k.
template <class Value>
void put_column(HostProblem& host, const PlacedTensor& tensor, DType dtype, std::int64_t seqlen,
                int num_heads, int column, const Value& value) {
  std::byte* const base = host.storages[static_cast<std::size_t>(tensor.storage)].data() +
                          tensor.offset_bytes;
  for (std::int64_t batch = 0; batch < host.problem.batch; ++batch)
    for (int head = 0; head < num_heads; ++head)
      for (std::int64_t row = 0; row < seqlen; ++row) {
        const Tensor& s = tensor.strides;
        store_element(dtype, base,
                      batch * s.stride_batch + head * s.stride_head + row * s.stride_row + column,
                      value(row));
      }
}

/// Scores of key j: factor(j) * 2^exponent + j % differences, exact in every dtype and as a sum in
/// fp32.
template <class Factor>
HostProblem with_scores(const Problem& problem, int exponent, int differences,
                        const Factor& factor) {
  HostProblem host = make_host_problem(problem, 5);
  const auto put = [&](const PlacedTensor& tensor, std::int64_t seqlen, int heads, int column,
                       const auto& value) {
    put_column(host, tensor, problem.dtype_q, seqlen, heads, column, value);
  };
  for (int d = 0; d < problem.head_dim; ++d) {
    const float q = d == 0 ? std::ldexp(1.0f, exponent / 2) : d == 1 ? 1.0f : 0.0f;
    put(host.q, problem.seqlen_q, problem.num_heads_q, d, [&](std::int64_t) { return q; });
    put(host.k, problem.seqlen_kv, problem.num_heads_kv, d, [&](std::int64_t j) {
      if (d == 0) return std::ldexp(factor(j), exponent - exponent / 2);
      return d == 1 ? static_cast<float>(j % differences) : 0.0f;
    });
  }
  return host;
}

class FarScores : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
  }

  /// Each dtype with the largest exponent that its products take.
  template <class Check>
  void for_each_dtype(const Check& check) {
    const ScopedContext context(gpu_context());
    for (const auto& [dtype, largest] : {std::pair("fp16", 28), std::pair("bf16", 125),
                                         std::pair("fp32", 125), std::pair("fp32 tf32", 125)}) {
      check(std::string(dtype), largest);
    }
  }

  void expect(const Problem& problem, const std::vector<Compiled>& some, const HostProblem& host,
              double o_error) {
    HostProblem inputs = host;
    const Reference expected = reference_attention(problem, inputs.tensors(), all_rows({problem}));
    GpuProblem gpu(host);
    for (const Compiled& compiled : some) {
      SCOPED_TRACE(to_string(compiled.candidate.config));
      ASSERT_EQ(compiled.failure, "");
      HostProblem after = after_run(Loaded(compiled), gpu, host);
      const Comparison o = compare_output(problem, after.tensors(), expected,
                                          {.atol = o_error, .rtol = o_error});
      const Comparison lse = compare_lse(problem, after.tensors(), expected,
                                         {.atol = problem.tf32 ? 2e-3 : 1e-4, .rtol = 1e-6});
      EXPECT_TRUE(o.passed()) << to_string(o);
      EXPECT_TRUE(lse.passed()) << to_string(lse);
    }
  }
};

double rounding(const Problem& problem) {
  return problem.dtype_q == DType::kFp32 && !problem.tf32 ? 1e-5 : 0.03;
}

TEST_P(FarScores, OfAnyMagnitudeAndSignPickTheLargest) {
  for_each_dtype([&](const std::string& dtype, int largest) {
    const Problem problem = parse_problem(
        fmt::format("fwd {} num_heads=2 seqlen=90:150 head_dim=64 causal lse", dtype));
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, 1, 3);
    if (some.empty()) return;  // a dtype that the family does not take
    for (const int exponent : {17, 20, 22, 27, 93, 103, 125}) {
      if (exponent > largest) continue;
      for (const int sign : {1, -1}) {
        SCOPED_TRACE(fmt::format("{} {} 2^{}", dtype, sign, exponent));
        // Of every seven keys one or two share the row's largest score.
        expect(problem, some,
               with_scores(problem, exponent, 1,
                           [&](std::int64_t j) {
                             return static_cast<float>(sign) *
                                    (1.0f + 0.5f * static_cast<float>(j * 3 % 7 % 5));
                           }),
               rounding(problem));
      }
    }
  });
}

TEST_P(FarScores, DifferByWhatTheyDiffer) {
  for_each_dtype([&](const std::string& dtype, int) {
    const Problem problem = parse_problem(
        fmt::format("fwd {} num_heads=2 seqlen=90:150 head_dim=64 softmax_scale=1 lse", dtype));
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, 1, 3);
    if (some.empty()) return;
    for (const int exponent : {14, 18, 20}) {  // beyond, scaled scores are rounded
      for (const float sign : {1.0f, -1.0f}) {
        SCOPED_TRACE(fmt::format("{} {} 2^{}", dtype, sign, exponent));
        expect(problem, some, with_scores(problem, exponent, 5, [&](std::int64_t) { return sign; }),
               rounding(problem));
      }
    }
  });
}

TEST_P(FarScores, ARowThatSeesNoKeyIsNoneOfThem) {
  for_each_dtype([&](const std::string& dtype, int largest) {
    const Problem problem = parse_problem(
        fmt::format("fwd {} num_heads=2 seqlen=150:60 head_dim=64 causal lse", dtype));
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, 1, 3);
    if (some.empty()) return;
    expect(problem, some, with_scores(problem, largest, 1, [](std::int64_t) { return -3.0f; }),
           rounding(problem));
  });
}

TEST_P(FarScores, ASoftCapIsAsExactWhereItIsFarAway) {
  for_each_dtype([&](const std::string& dtype, int) {
    for (const char* cap : {"5", "30", "100", "1e3", "1e6", "1e8", "1e12"}) {
      const Problem problem = parse_problem(fmt::format(
          "fwd {} num_heads=2 seqlen=200:333 head_dim=64 causal softcap={} lse", dtype, cap));
      const std::vector<Compiled> some = compile_some(*GetParam(), problem, 1, 3);
      if (some.empty()) return;
      SCOPED_TRACE(to_string(problem));
      const bool is_fp32 = problem.dtype_q == DType::kFp32 && !problem.tf32;
      expect(problem, some, make_host_problem(problem, 11), is_fp32 ? 2e-6 : 0.03);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, FarScores, testing::ValuesIn(all_families_of(Op::kForward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
