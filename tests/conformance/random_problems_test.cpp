// random_problems_test.cpp - problems that nobody chose: a random candidate for each, of a product
// family where one serves, against the oracle. What fails is shrunk to the plainest problem and the
// best candidate that still do, and printed. RC_PARAMS="seed=7 max_success=30" is the default;
// another seed or count draws others.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ostream>

#include "attnforge/error.h"
#include "templates/registry.h"
#include "tests/conformance/any_case.h"
#include "tests/conformance/proof.h"
#include "tests/support/arbitrary_problem.h"

namespace attnforge {
namespace {

using namespace test;

// Before rapidcheck looks.
[[maybe_unused]] const int set = setenv("RC_PARAMS", "seed=7 max_success=30", 0);

struct RandomRun {
  AnyCase drawn;
  Candidate candidate;  // without a family if nobody serves the problem
};

std::ostream& operator<<(std::ostream& out, const RandomRun& run) {
  const auto& [problem, how] = run.drawn;
  return out << fmt::format("{}\n  {}\n  inputs {}, gaps {} {} {}\n", to_string(problem),
                            to_string(run.candidate.config), static_cast<int>(how.inputs),
                            how.gaps.row, how.gaps.head, how.gaps.rows_after);
}

rc::Gen<RandomRun> arbitrary_run() {
  return rc::gen::exec([] {
    ArbitraryChoices choices;
    RandomRun run{any_case(choices), {}};
    const auto all = candidates(registry(), run.drawn.problem, gpu_facts());
    if (!all.empty()) run.candidate = choices.among(all);
    return run;
  });
}

std::string fault_of(const RandomRun& run) {
  if (run.candidate.family == nullptr) return "no family serves it";
  const Expectation expected(run.drawn.problem, run.drawn.how);
  GpuProblem gpu(expected.host);
  return test::fault_of(compile_candidate(run.candidate, run.drawn.problem), expected, gpu);
}

TEST(RandomProblems, AnyCandidateMatchesTheOracle) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  bool lost = false;  // a GPU that is lost stays lost: what is said then is not about the problem
  rc::detail::checkGTest([&] {
    const RandomRun run = *arbitrary_run();
    if (lost) RC_SUCCEED("the GPU is lost");
    std::string fault;
    try {
      fault = fault_of(run);
    } catch (const Error& error) {
      lost = true;
      fault = error.what();
    }
    if (!fault.empty()) RC_FAIL(fault);
  });
}

}  // namespace
}  // namespace attnforge
