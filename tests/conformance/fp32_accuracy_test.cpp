// fp32_accuracy_test.cpp - problems in fp32 without TF32 are served at the accuracy of fp32: within
// 1e-6 of fp64 on normal inputs, whichever way products are made. Causal masks leave some rows few
// keys: outputs are as large as inputs there, and so are errors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <random>

#include "reference/compare/outputs.h"
#include "templates/registry.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

constexpr double kLargestError = 1e-6;
constexpr double kSmallestCosine = 0.9999995;  // 1.000000 in six digits
constexpr int kMoreConfigs = 5;                // beside the one used when nothing was measured
constexpr int kRows = 400;                     // that are compared

/// Of both heads, chosen at random; the first ones, of few keys, too.
std::vector<QueryRow> some_rows(const Problem& problem) {
  std::mt19937 random(3);
  std::vector<QueryRow> rows;
  for (int i = 0; i < kRows / 2; ++i) {
    rows.push_back({0, i % 2, i / 2});
    rows.push_back({0, i % 2, static_cast<std::int64_t>(random() % unsigned(problem.seqlen_q))});
  }
  return rows;
}

class Fp32Accuracy : public testing::TestWithParam<int> {};

TEST_P(Fp32Accuracy, IsWithinAMillionthOfFp64) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  const ScopedContext context(gpu_context());
  const Family* family = find_family("fwd_regtile_f32");
  for (const char* sizes : {"seqlen=128", "seqlen=512", "seqlen=512 causal", "seqlen=2048"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd fp32 batch=1 num_heads=2 {} head_dim={} lse", sizes, GetParam()));
    HostProblem host = make_host_problem(problem, 11);
    const Reference reference = reference_attention(problem, host.tensors(), some_rows(problem));
    GpuProblem gpu(host);
    for (const Compiled& compiled : compile_some(*family, problem, kMoreConfigs, 5)) {
      ASSERT_EQ(compiled.failure, "");
      HostProblem after = after_run(Loaded(compiled), gpu, host);
      const Verdict verdict = compare(problem, after.tensors(), reference);
      EXPECT_LE(verdict.o.max_error, kLargestError) << to_string(compiled.candidate.config) << "\n"
                                                    << to_string(verdict.o);
      EXPECT_GE(verdict.o.cosine, kSmallestCosine) << to_string(compiled.candidate.config);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, Fp32Accuracy, testing::Values(48, 64, 72, 96, 128, 160),
                         [](const auto& info) { return std::to_string(info.param); });

}  // namespace
}  // namespace attnforge
