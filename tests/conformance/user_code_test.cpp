// user_code_test.cpp - the user's texts on the GPU, each against the same in C++ on the CPU.
#include <gtest/gtest.h>

#include <string>

#include "generator/user_code/user_code.h"
#include "reference/compare.h"
#include "reference/sequences.h"
#include "templates/registry.h"
#include "tests/conformance/code_cases.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

class UserCodeConformance : public testing::TestWithParam<CodeCase> {};

TEST_P(UserCodeConformance, MatchesItsFunctionOnTheCpu) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  for (const char* text : GetParam().problems) {
    Problem problem = parse_problem(text);
    add_code(problem, GetParam().texts);
    HostProblem host = make_host_problem(problem, kConformanceSeed);
    const Reference reference = reference_attention(problem, host.tensors(),
                                                    all_rows(sequences_of(problem, host.tensors())),
                                                    GetParam().functions);
    GpuProblem gpu(host);
    const RunArguments run = arguments_of(problem);
    gpu.tensors.code_arguments = run.words.data();
    int families = 0;
    for (const Family* family : registry()) {
      for (const Compiled& compiled : compile_some(*family, problem, 3, kConformanceSeed)) {
        ++families;
        ASSERT_EQ(compiled.failure, "") << text;
        const Loaded loaded(compiled);
        HostProblem after = after_run(loaded, gpu, host);
        const Verdict verdict = compare(problem, after.tensors(), reference);
        EXPECT_TRUE(verdict.passed()) << to_string(compiled.candidate.config) << "\n"
                                      << to_string(problem) << "\n"
                                      << to_string(verdict);
        EXPECT_EQ(after.trespass(), "") << to_string(compiled.candidate.config);
      }
    }
    EXPECT_GE(families, 2) << "a product and the oracle: " << text;
  }
}

INSTANTIATE_TEST_SUITE_P(Texts, UserCodeConformance, testing::ValuesIn(code_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
