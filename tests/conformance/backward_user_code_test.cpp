// backward_user_code_test.cpp - gradients through the user's texts on the GPU, against those of the
// same in C++ on the CPU.
#include <gtest/gtest.h>

#include "generator/user_code.h"
#include "tests/conformance/backward_proof.h"
#include "tests/conformance/code_cases.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

class BackwardUserCode : public testing::TestWithParam<CodeCase> {};

TEST_P(BackwardUserCode, MatchesItsFunctionOnTheCpu) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  int served = 0, of_problem = 0;
  for (const char* text : GetParam().problems) {
    Problem problem = parse_problem(text);
    if (has_pages(problem)) continue;
    problem.op = Op::kBackward;
    problem.lse = false;
    add_code(problem, GetParam().texts);
    problem.deterministic = of_problem++ % 2 != 0;  // other sums of dQ
    std::vector<Compiled> configs;
    for (const Family* family : families_of(Op::kBackward)) {
      for (Compiled& compiled : compile_some(*family, problem, random_configs(), kConformanceSeed))
        configs.push_back(std::move(compiled));
    }
    EXPECT_FALSE(configs.empty() && only_family().empty()) << "no family serves " << text;
    if (configs.empty()) continue;
    const BackwardExpectation expected(problem, GetParam().functions);
    GpuProblem gpu(expected.host);
    const RunArguments run = arguments_of(problem);
    gpu.tensors.code_arguments = run.words.data();
    for (const Compiled& compiled : configs) {
      ++served;
      EXPECT_EQ(fault_of(compiled, expected, gpu), "")
          << to_string(problem) << "\n  " << to_string(compiled.candidate.config);
    }
  }
  if (served == 0) GTEST_SKIP() << "no backward family serves texts";
}

/// On the CPU: what the test above is measured by.
TEST(CodeCases, HaveTheDerivativesOfTheirScores) {
  const CodePair pair{.batch = 1, .head = 1, .q = 7, .k = 11, .seqlen_q = 20, .seqlen_kv = 30};
  for (const CodeCase& c : code_cases()) {
    const CodeFunctions& f = c.functions;
    ASSERT_EQ(f.score != nullptr, f.score_derivative != nullptr) << c.name;
    if (!f.score) continue;
    for (const double s : {-3.0, -0.5, 0.25, 2.0}) {
      const double step = 1e-4;
      EXPECT_NEAR(f.score_derivative(s, pair),
                  (f.score(s + step, pair) - f.score(s - step, pair)) / (2 * step), 1e-7)
          << c.name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, BackwardUserCode, testing::ValuesIn(code_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
