// problems.cpp - random valid problems on the GPU: every family that serves one, with its first
// config and random others, forward and backward, against the oracle, on NaN-poisoned outputs
// between canaries, twice. Ends with 0 if everything was right, 77 without a GPU. A failure is
// printed with the problem, the config and the seed.
//   torture_problems [--seconds S] [--seed X]
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attnforge/error.h"
#include "templates/registry.h"
#include "tests/conformance/any_case.h"
#include "tests/conformance/backward/backward_proof.h"
#include "tests/conformance/proof.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/random_choices.h"
#include "tests/torture/gpu_main.h"

namespace attnforge::torture {
namespace {

using namespace test;

constexpr int kMoreConfigs = 2;

struct Counts {
  int problems = 0, kernels = 0, runs = 0, failed = 0, unserved = 0;
  std::string text() const {
    return fmt::format("{} problems, {} kernels, {} runs, {} failed, {} problems served by nobody",
                       problems, kernels, runs, failed, unserved);
  }
};

template <class Expected>
void check_problem(const AnyCase& drawn, fuzz::Random& random, std::uint64_t seed, Counts& counts) {
  const auto& [problem, how] = drawn;
  ++counts.problems;
  const Expected expected(problem, how);
  GpuProblem gpu(expected.host);
  int served = 0;
  for (const Family* family : registry()) {
    const auto configs = compile_some(*family, problem, kMoreConfigs,
                                      static_cast<unsigned>(random.next()));
    served += !configs.empty();
    for (const Compiled& compiled : configs) {
      ++counts.kernels;
      counts.runs += 2;
      const std::string fault = fault_of(compiled, expected, gpu);
      EXPECT_EQ(fault, "");
      if (fault.empty()) continue;
      ++counts.failed;
      fmt::print(
          "torture_problems: failed: {}\n  {}\n  inputs {}, gaps {} {} {}; seed {}, problem {}\n",
          to_string(problem), to_string(compiled.candidate.config), static_cast<int>(how.inputs),
          how.gaps.row, how.gaps.head, how.gaps.rows_after, seed, counts.problems);
    }
  }
  // A backward family may be without a part.
  counts.unserved += served == 0 && !is_backward(problem);
}

/// One of three is of backward.
void check_any_problem(fuzz::Random& random, std::uint64_t seed, Counts& counts) {
  const Op op = counts.problems % 3 == 2 ? Op::kBackward : Op::kForward;
  RandomChoices choices(random.next());
  const AnyCase drawn = any_case(choices, op);
  if (op == Op::kForward) {
    check_problem<Expectation>(drawn, random, seed, counts);
  } else {
    check_problem<BackwardExpectation>(drawn, random, seed, counts);
  }
}

Options options;

TEST(RandomProblems, MatchTheOracle) {
  ScopedContext context(gpu_context());
  fuzz::Random random(options.seed);
  Counts counts;
  {
    Progress progress("torture_problems");
    // A driver's error is thrown and ends this: a GPU that is lost stays lost.
    while (progress.seconds() < options.seconds) {
      check_any_problem(random, options.seed, counts);
      progress.show(counts.text());
    }
    fmt::print("torture_problems: {} in {:.1f} s, seed {}\n", counts.text(), progress.seconds(),
               options.seed);
  }
  EXPECT_GT(counts.runs, 0);
  EXPECT_EQ(counts.unserved, 0);
}

}  // namespace
}  // namespace attnforge::torture

int main(int argc, char** argv) {
  using namespace attnforge::torture;
  return run_on_gpu("torture_problems", argc, argv, options);
}
