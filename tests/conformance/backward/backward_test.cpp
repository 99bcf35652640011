// backward_test.cpp - every backward family of the registry, several configs each, over the hard
// cases of gradients: against the fp64 gradients, nothing written elsewhere, and where the problem
// says so the same bits every time. options.h has what the environment may say.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "attnforge/error.h"
#include "tests/conformance/backward/backward_proof.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

/// Compiled configs, run twice each.
void expect_right_gradients(const Problem& problem, const BackwardExpectation& expected,
                            GpuProblem& gpu, const std::vector<Compiled>& configs) {
  for (const Compiled& compiled : configs) {
    SCOPED_TRACE(fmt::format("{}\n  {} (seed {})", to_string(problem),
                             to_string(compiled.candidate.config), kConformanceSeed));
    EXPECT_EQ(fault_of(compiled, expected, gpu), "");
  }
}

class BackwardConformance : public testing::TestWithParam<ConformanceCase> {
 protected:
  void SetUp() override {
    const std::string problem = gpu_problem();
    if (!problem.empty()) GTEST_SKIP() << problem;
  }

  /// Returns how many families served the problem. What none serves is not worked out.
  int check_problem(const Problem& problem) {
    std::vector<std::vector<Compiled>> served;
    for (const Family* family : families_of(Op::kBackward)) {
      served.push_back(compile_some(*family, problem, random_configs(), kConformanceSeed));
      if (served.back().empty()) served.pop_back();
    }
    if (served.empty()) return 0;
    const BackwardExpectation expected(problem, GetParam());
    GpuProblem gpu(expected.host);
    for (const std::vector<Compiled>& some : served)
      expect_right_gradients(problem, expected, gpu, some);
    return static_cast<int>(served.size());
  }
};

TEST_P(BackwardConformance, MatchesTheOracle) {
  ScopedContext context(gpu_context());
  for (const std::string& text : GetParam().problems) {
    const int families = check_problem(parse_problem(text));
    EXPECT_GE(families, only_family().empty() ? 1 : 0) << "no family serves " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(HardCases, BackwardConformance, testing::ValuesIn(backward_cases()),
                         [](const auto& info) { return info.param.name; });

class BackwardConformanceOfParts : public BackwardConformance {};

TEST_P(BackwardConformanceOfParts, MatchesTheOracle) {
  ScopedContext context(gpu_context());
  int families = 0;
  for (const std::string& text : GetParam().problems)
    families += check_problem(parse_problem(text));
  if (families == 0) GTEST_SKIP() << "no backward family serves this";
}

INSTANTIATE_TEST_SUITE_P(HardCases, BackwardConformanceOfParts,
                         testing::ValuesIn(backward_cases_of_parts()),
                         [](const auto& info) { return info.param.name; });

/// What a caller may give and no search tries.
TEST(BackwardConformanceOfUnsearchedConfigs, MatchesTheOracle) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  const ConformanceCase hard{"Unsearched", {}, Inputs::kGrowingToFirst};
  for (const char* text :
       {"bwd bf16 batch=1 num_heads=6:2 seqlen=64:300 head_dim=64 causal",
        "bwd fp16 batch=2 num_heads=8:1 seqlen=150:203 head_dim=128 deterministic",
        "bwd bf16 batch=1 num_heads=2 seqlen=200:333 head_dim=72 causal dlse",
        "bwd fp16 batch=1 num_heads=4:2 seqlen=150 head_dim=192:128 window_left=64",
        "bwd bf16 batch=3 num_heads=4:2 seqlen=150 head_dim=256 lengths=packed causal"}) {
    const Problem problem = parse_problem(text);
    const BackwardExpectation expected(problem, hard);
    GpuProblem gpu(expected.host);
    for (const Family* family : families_of(Op::kBackward)) {
      expect_right_gradients(
          problem, expected, gpu,
          compile_unsearched(*family, problem, random_configs(), kConformanceSeed));
    }
  }
}

/// Runs of one workspace that nobody cleans between them, as a caller's are.
TEST(BackwardConformanceOfUsedWorkspaces, MatchesTheOracle) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text :
       {"bwd bf16 batch=2 num_heads=4:2 seqlen=300:333 head_dim=64 causal",
        "bwd fp16 batch=2 num_heads=4:2 seqlen=300 head_dim=128 causal deterministic",
        "bwd bf16 batch=40 num_heads=16:8 seqlen=70:150 head_dim=64 causal",
        "bwd bf16 batch=5 num_heads=4:2 seqlen=200 head_dim=64 lengths=packed deterministic"}) {
    const Problem problem = parse_problem(text);
    const BackwardExpectation expected(problem, ConformanceCase{});
    GpuProblem gpu(expected.host);
    for (const Family* family : families_of(Op::kBackward)) {
      for (const Compiled& compiled :
           compile_some(*family, problem, random_configs(), kConformanceSeed)) {
        SCOPED_TRACE(fmt::format("{}\n  {}", text, to_string(compiled.candidate.config)));
        ASSERT_EQ(compiled.failure, "");
        const Loaded loaded(compiled);
        const Buffer workspace = loaded.make_workspace();
        gpu.upload(expected.host);
        check(driver().cuCtxSynchronize(), "wait for the uploads");
        Stream stream;
        for (int run = 0; run < 3; ++run) loaded.run(gpu.tensors, workspace, stream.get());
        stream.synchronize();
        HostProblem after = expected.host;
        gpu.download(after);
        EXPECT_EQ(fault_of(expected, after), "");
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
