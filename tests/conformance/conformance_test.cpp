// conformance_test.cpp - every family of the registry, several configs each, over the hard cases:
// outputs against the oracle, nothing written elsewhere, and the same bits every time.
// ATTNFORGE_CONFORMANCE_CONFIGS=n tries n random configs (2), ATTNFORGE_CONFORMANCE_FAMILY=name
// only that family, with no test failing for a problem that it does not serve.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "templates/registry.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

int random_configs() {
  const char* text = std::getenv("ATTNFORGE_CONFORMANCE_CONFIGS");
  return text == nullptr ? 2 : std::max(0, std::atoi(text));
}

/// "": all families.
std::string only_family() {
  const char* text = std::getenv("ATTNFORGE_CONFORMANCE_FAMILY");
  return text == nullptr ? "" : text;
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
    for (const Family* family : registry()) {
      if (!only_family().empty() && family->name != only_family()) continue;
      const std::vector<Compiled> some = compile_some(*family, problem, random_configs(),
                                                      kConformanceSeed);
      if (!some.empty()) ++families;
      for (const Compiled& compiled : some) {
        SCOPED_TRACE(fmt::format("{}\n  {} (seed {})", to_string(problem),
                                 to_string(compiled.candidate.config), kConformanceSeed));
        EXPECT_EQ(compiled.failure, "");
        if (!compiled.failure.empty()) continue;
        const Loaded loaded(compiled);
        HostProblem first = after_run(loaded, gpu, expected.host);
        expect_right(expected, first);
        EXPECT_TRUE(after_run(loaded, gpu, expected.host).storages == first.storages)
            << "a second run gave other bits";
      }
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

INSTANTIATE_TEST_SUITE_P(HardCases, Conformance, testing::ValuesIn(conformance_cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
