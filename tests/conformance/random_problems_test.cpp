// random_problems_test.cpp - problems that nobody chose: a random candidate for each, of a product
// family where one serves, against the oracle. What fails is shrunk to the plainest problem and the
// best candidate that still do, and printed. Forward and backward. RC_PARAMS="seed=7
// max_success=30" is the default; another seed or count draws others.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <stdlib.h>

#include <ostream>

#include "attnforge/error.h"
#include "templates/registry.h"
#include "tests/conformance/any_case.h"
#include "tests/conformance/backward/backward_proof.h"
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

std::string to_string(const RandomRun& run) {
  const auto& [problem, how] = run.drawn;
  return fmt::format("{}\n  {}\n  inputs {}, gaps {} {} {}\n", to_string(problem),
                     to_string(run.candidate.config), static_cast<int>(how.inputs), how.gaps.row,
                     how.gaps.head, how.gaps.rows_after);
}

std::ostream& operator<<(std::ostream& out, const RandomRun& run) { return out << to_string(run); }

rc::Gen<RandomRun> arbitrary_run(Op op) {
  return rc::gen::exec([op] {
    ArbitraryChoices choices;
    RandomRun run{any_case(choices, op), {}};
    const auto all = candidates(registry(), run.drawn.problem, gpu_facts());
    if (!all.empty()) run.candidate = choices.among(all);
    return run;
  });
}

/// A backward family may be without a part: then there is nothing to run.
std::string fault_of(const RandomRun& run) {
  const bool backward = is_backward(run.drawn.problem);
  if (run.candidate.family == nullptr) return backward ? "" : "no family serves it";
  if (backward) {
    const BackwardExpectation expected(run.drawn.problem, run.drawn.how);
    GpuProblem gpu(expected.host);
    return test::fault_of(compile_candidate(run.candidate, run.drawn.problem), expected, gpu);
  }
  const Expectation expected(run.drawn.problem, run.drawn.how);
  GpuProblem gpu(expected.host);
  return test::fault_of(compile_candidate(run.candidate, run.drawn.problem), expected, gpu);
}

void check_random_runs(Op op) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  ScopedContext context(gpu_context());
  // A GPU that is lost stays lost: what it says of other problems is not about them.
  std::string lost_by, lost;
  rc::detail::checkGTest([&] {
    const RandomRun run = *arbitrary_run(op);
    const std::string text = to_string(run);
    if (!lost.empty() && text != lost_by) RC_SUCCEED("the GPU is lost");
    std::string fault = lost;
    try {
      if (lost.empty()) fault = fault_of(run);
    } catch (const Error& error) {
      lost_by = text;
      fault = lost = error.what();
    }
    if (!fault.empty()) RC_FAIL(fault);
  });
}

TEST(RandomProblems, AnyCandidateMatchesTheOracle) { check_random_runs(Op::kForward); }

TEST(RandomProblems, AnyCandidateOfBackwardMatchesTheOracle) { check_random_runs(Op::kBackward); }

}  // namespace
}  // namespace attnforge
