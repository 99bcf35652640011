// conformance_test.cpp - every family of the registry, several configs each, over the hard cases:
// outputs against the oracle, nothing written elsewhere, and the same bits every time. options.h
// has what the environment may say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

/// Compiled configs, run twice each.
void expect_all_right(const Problem& problem, const Expectation& expected, GpuProblem& gpu,
                      const std::vector<Compiled>& configs) {
  for (const Compiled& compiled : configs) {
    SCOPED_TRACE(fmt::format("{}\n  {} (seed {})", to_string(problem),
                             to_string(compiled.candidate.config), kConformanceSeed));
    EXPECT_EQ(fault_of(compiled, expected, gpu), "");
  }
}

class Conformance : public testing::TestWithParam<ConformanceCase> {
 protected:
  void SetUp() override {
    const std::string problem = gpu_problem();
    if (!problem.empty()) GTEST_SKIP() << problem;
  }

  /// Returns how many families served the problem.
  int check_problem(const Problem& problem) {
    const Expectation expected(problem, GetParam());
    GpuProblem gpu(expected.host);
    int families = 0;
    for (const Family* family : families_of(Op::kForward)) {
      const std::vector<Compiled> some = compile_some(*family, problem, random_configs(),
                                                      kConformanceSeed);
      if (!some.empty()) ++families;
      expect_all_right(problem, expected, gpu, some);
    }
    return families;
  }
};

TEST_P(Conformance, MatchesTheOracle) {
  ScopedContext context(gpu_context());
  for (const std::string& text : GetParam().problems) {
    const int families = check_problem(parse_problem(text));
    EXPECT_GE(families, only_family().empty() ? 1 : 0) << "no family serves " << text;
  }
}

TEST(ConformanceOfUnsearchedConfigs, MatchesTheOracle) {
  // What is accepted from a text must be right: nobody has measured it.
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  const ConformanceCase hard{"Unsearched", {}, Inputs::kGrowingToFirst};
  std::size_t tried = 0;
  for (const char* text :
       {"fwd bf16 batch=1 num_heads=6:2 seqlen=64:300 head_dim=64 causal lse",
        "fwd fp16 batch=2 num_heads=8:1 seqlen=1:700 head_dim=128 lse",
        "fwd bf16 batch=1 num_heads=2 seqlen=200:333 head_dim=72 causal rope=half",
        "fwd fp16 batch=1 num_heads=2 seqlen=130:190 head_dim=160 causal",
        "fwd bf16 batch=2 num_heads=2 seqlen=33:250 head_dim=40:104 window_left=30 lse",
        "fwd bf16 batch=1 num_heads=8:1 seqlen=3:500 head_dim=72 lse rope=half",
        "fwd fp16 batch=1 num_heads=4:2 seqlen=150 head_dim=320:512 softcap=30 window_left=64",
        "fwd fp32 batch=1 num_heads=6:2 seqlen=100:300 head_dim=96:40 alignment=4 lse",
        "fwd fp32 batch=1 num_heads=3 seqlen=257 head_dim=64:128 causal tf32"}) {
    const Problem problem = parse_problem(text);
    const Expectation expected(problem, hard);
    GpuProblem gpu(expected.host);
    for (const Family* family : families_of(Op::kForward)) {
      const std::vector<Compiled> unsearched = compile_unsearched(
          *family, problem, random_configs(), kConformanceSeed);
      tried += unsearched.size();
      expect_all_right(problem, expected, gpu, unsearched);
    }
  }
  EXPECT_TRUE(tried > 0 || !only_family().empty());
}

INSTANTIATE_TEST_SUITE_P(HardCases, Conformance, testing::ValuesIn(conformance_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
