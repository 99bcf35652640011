// user_code_test.cpp - the user's texts on the GPU, each against the same in C++ on the CPU.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "generator/user_code/user_code.h"
#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "templates/registry.h"
#include "tests/conformance/code_cases.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/proof.h"
#include "tests/conformance/random_texts.h"

namespace attnforge {
namespace {

using namespace test;

/// Runs the problem with these arguments in all families that serve it, each with `more` configs
/// beside its first.
void expect_same(const Problem& problem, const CodeFunctions& functions, const RunArguments& run,
                 int more = 3) {
  HostProblem host = make_host_problem(problem, kConformanceSeed);
  const Reference reference = reference_attention(
      problem, host.tensors(), all_rows(sequences_of(problem, host.tensors())), functions);
  GpuProblem gpu(host);
  gpu.tensors.code_arguments = run.words.data();
  int families = 0;
  for (const Family* family : registry()) {
    for (const Compiled& compiled : compile_some(*family, problem, more, kConformanceSeed)) {
      ++families;
      ASSERT_EQ(compiled.failure, "") << to_string(problem);
      const Loaded loaded(compiled);
      HostProblem after = after_run(loaded, gpu, host);
      const Verdict verdict = compare(problem, after.tensors(), reference);
      EXPECT_TRUE(verdict.passed()) << to_string(compiled.candidate.config) << "\n"
                                    << to_string(problem) << "\n"
                                    << to_string(verdict);
      EXPECT_EQ(after.trespass(), "") << to_string(compiled.candidate.config);
    }
  }
  EXPECT_GE(families, 2) << "a product and the oracle: " << to_string(problem);
}

class UserCodeConformance : public testing::TestWithParam<CodeCase> {};

TEST_P(UserCodeConformance, MatchesItsFunctionOnTheCpu) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text : GetParam().problems) {
    Problem problem = parse_problem(text);
    add_code(problem, GetParam().texts);
    expect_same(problem, GetParam().functions, arguments_of(problem));
  }
}

/// Where 32 bits would wrap around to addresses before the array.
TEST(WideIndexesOnTheGpu, ReadElementsBeyond2To31) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  constexpr std::size_t kApart = std::size_t{1} << 30, kBatch = 3;  // the last one begins at 2^31
  if (gpu_facts().memory_bytes < 8 * static_cast<std::int64_t>(kApart))
    GTEST_SKIP() << "needs 3 GiB for an array";
  for (const char* text :
       {"fwd bf16 batch=3 num_heads=2 seqlen=130:200 head_dim=128 causal lse",
        "fwd bf16 batch=3 num_heads=2 seqlen=130:200 head_dim=64 lengths=used"}) {
    Problem problem = parse_problem(text);
    problem.args = "bool* seen[batch * 1073741824], int apart";
    problem.score = "s + (seen[batch * apart + q * seqlen_kv + k] ? 0.5f : -0.5f)";
    problem.mask = "seen[batch * 1073741824 + k * seqlen_q + q] || k % 3 == 0";
    const auto seen = [](std::int64_t batch, std::int64_t at) {
      return (at * 7 + batch * 3) % 11 < 6;
    };
    RunArguments run;
    Buffer array(kBatch * kApart);
    for (std::size_t b = 0; b < kBatch; ++b) {
      std::vector<std::uint8_t> values(static_cast<std::size_t>(130 * 200));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = seen(static_cast<std::int64_t>(b), static_cast<std::int64_t>(i));
      array.copy_from_host(values.data(), values.size(), b * kApart);
    }
    run.words = {reinterpret_cast<std::uintptr_t>(array.data()), kApart};
    run.arrays.push_back(std::move(array));
    const CodeFunctions functions{
        .score =
            [&](double s, const CodePair& p) {
              return s + (seen(p.batch, p.q * p.seqlen_kv + p.k) ? 0.5 : -0.5);
            },
        .mask =
            [&](const CodePair& p) {
              return seen(p.batch, p.k * p.seqlen_q + p.q) || p.k % 3 == 0;
            }};
    expect_same(problem, functions, run);
  }
}

TEST(RandomTexts, Forward) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for_each_random_text(Op::kForward,
                       [](const Problem& problem, const CodeFunctions& functions,
                          const RunArguments& run) { expect_same(problem, functions, run, 1); });
}

INSTANTIATE_TEST_SUITE_P(Texts, UserCodeConformance, testing::ValuesIn(code_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
