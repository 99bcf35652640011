// problems.cpp - random valid problems on the GPU: every family that serves one, with its first
// config and random others, against the oracle, on NaN-poisoned outputs between canaries, twice.
// Ends with 0 if everything was right, 77 without a GPU. A failure is printed with the problem, the
// config and the seed.
//   torture_problems [--seconds S] [--seed X]
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attnforge/error.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"
#include "tests/fuzz/any_problem.h"
#include "tests/fuzz/mutate.h"
#include "tests/torture/options.h"

namespace attnforge::torture {
namespace {

using namespace test;

constexpr int kMoreConfigs = 2;
constexpr double kMostFlops = 4e9;  // the oracle has a CPU
constexpr double kMostBytes = 64 << 20;
// One seed for the inputs is enough: they are N(0, 1) or one of the hard kinds.
constexpr Inputs kInputs[] = {
    Inputs::kNormal, Inputs::kNormal,         Inputs::kStronglyNegative, Inputs::kStronglyPositive,
    Inputs::kLarge,  Inputs::kGrowingToFirst, Inputs::kGrowingToLast,    Inputs::kEqualScores};

struct Counts {
  int problems = 0, kernels = 0, runs = 0, failed = 0, unserved = 0;
  std::string text() const {
    return fmt::format("{} problems, {} kernels, {} runs, {} failed, {} problems served by nobody",
                       problems, kernels, runs, failed, unserved);
  }
};

std::string random_bytes(fuzz::Random& random, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(random.next());
  return bytes;
}

/// A problem that the oracle solves in a second, and how its tensors lie in memory.
Problem small_problem(fuzz::Random& random, ConformanceCase& how) {
  for (;;) {
    const std::string text = random_bytes(random, 160);
    fuzz::Bytes bytes(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
    how.inputs = kInputs[bytes.byte() % std::size(kInputs)];
    how.gaps = {.row = bytes.byte() % 3, .head = bytes.byte() % 3, .rows_after = bytes.byte() % 3};
    const Problem p = fuzz::any_problem(bytes,
                                        {.batch_bits = 2, .heads_bits = 2, .seqlen_bits = 10});
    if (p.layout == Layout::kBhsd) how.gaps.head = 0;
    // Hard inputs are made for scores of the usual scale.
    if (p.softmax_scale != 0 || p.rope != Rope::kNone) how.inputs = Inputs::kNormal;
    if (p.batch > 0 && p.seqlen_q > 0 && flops(p) <= kMostFlops && minimum_bytes(p) <= kMostBytes)
      return p;
  }
}

void check_config(const Compiled& compiled, const Expectation& expected, GpuProblem& gpu,
                  Counts& counts) {
  ++counts.kernels;
  EXPECT_EQ(compiled.failure, "");
  if (!compiled.failure.empty()) return;
  const Loaded loaded(compiled);
  HostProblem first = after_run(loaded, gpu, expected.host);
  expect_right(expected, first);
  EXPECT_TRUE(after_run(loaded, gpu, expected.host).storages == first.storages)
      << "a second run gave other bits";
  counts.runs += 2;
}

int parts_so_far() {
  return ::testing::UnitTest::GetInstance()->current_test_info()->result()->total_part_count();
}

void check_problem(fuzz::Random& random, std::uint64_t seed, Counts& counts) {
  ConformanceCase how;
  const Problem problem = small_problem(random, how);
  ++counts.problems;
  const Expectation expected(problem, how);
  GpuProblem gpu(expected.host);
  int served = 0;
  for (const Family* family : registry()) {
    const auto configs = compile_some(*family, problem, kMoreConfigs,
                                      static_cast<unsigned>(random.next()));
    served += !configs.empty();
    for (const Compiled& compiled : configs) {
      const int parts = parts_so_far();
      check_config(compiled, expected, gpu, counts);
      if (parts_so_far() == parts) continue;
      ++counts.failed;
      fmt::print(
          "torture_problems: failed: {}\n  {}\n  inputs {}, gaps {} {} {}; seed {}, problem {}\n",
          to_string(problem), to_string(compiled.candidate.config), static_cast<int>(how.inputs),
          how.gaps.row, how.gaps.head, how.gaps.rows_after, seed, counts.problems);
    }
  }
  counts.unserved += served == 0;
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
      check_problem(random, options.seed, counts);
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
  ::testing::InitGoogleTest(&argc, argv);
  attnforge::torture::options = attnforge::torture::read_options(argc, argv);
  if (const std::string problem = attnforge::test::gpu_problem(); !problem.empty()) {
    fmt::print("torture_problems: skipped: {}\n", problem);
    return 77;
  }
  return RUN_ALL_TESTS();
}
