// contract_test.cpp - what family.h promises, checked for every family of the registry on every
// arch. No compiler, no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "templates/parts/rope/host.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

/// Of a family, on every arch in turn: a process per arch would take longer than what it does.
class FamilyContract : public testing::TestWithParam<const Family*> {
 protected:
  const Family& family() const { return *GetParam(); }

  /// The first candidates of every problem that the family serves, on every arch.
  template <class Visit>
  void for_each_candidate(Visit&& visit) const {
    for (const Arch& arch : archs()) {
      const DeviceFacts& device = typical_device(arch.name);
      for (const Problem& problem : test::problems_of(family())) {
        const std::vector<Candidate> found = candidates(family(), problem, device);
        for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 4); ++i) {
          SCOPED_TRACE("sm_" + std::string(arch.name) + ": " + to_string(problem) + "\n  " +
                       to_string(found[i].config));
          visit(problem, found[i], device);
        }
      }
    }
  }
};

TEST_P(FamilyContract, ServesProblemsOrSaysWhyNot) {
  int archs_served = 0;
  for (const Arch& arch : archs()) {
    int served = 0;
    for (const Problem& problem : test::problems_of(family())) {
      if (!rejection(family(), problem, arch).empty()) continue;
      ++served;
      EXPECT_FALSE(candidates(family(), problem, typical_device(arch.name)).empty())
          << "sm_" << arch.name << ": " << to_string(problem);
    }
    EXPECT_TRUE(served == 0 || served >= 8) << served << " on sm_" << arch.name;
    archs_served += served > 0 ? 1 : 0;
  }
  EXPECT_GE(archs_served, 1);
}

TEST_P(FamilyContract, ConfigsSurviveTheirText) {
  for_each_candidate(
      [&](const Problem& problem, const Candidate& candidate, const DeviceFacts& device) {
        EXPECT_EQ(candidate.config.family, family().name);
        const Config again = parse_config(to_string(candidate.config));
        EXPECT_EQ(again, candidate.config);
        EXPECT_EQ(illegal(family(), again, problem, device), "");
        EXPECT_EQ(family().needless(again, problem, device), "");
        EXPECT_GT(candidate.estimate_us, 0);
      });
}

TEST_P(FamilyContract, SourcesAreCompleteInThemselvesAndNamed) {
  std::set<std::string> digests;
  std::set<std::string> texts;
  for_each_candidate([&](const Problem& problem, const Candidate& candidate, const DeviceFacts&) {
    const Source source = family().render(candidate.config, problem);
    EXPECT_EQ(source.entry.rfind("// generated: " + to_string(candidate.config) + "\n", 0), 0u);
    EXPECT_EQ(source.text.find("#include"), std::string::npos);
    EXPECT_NE(source.text.find(source.name + "("), std::string::npos);
    EXPECT_EQ(source.name.rfind(family().name, 0), 0u);
    EXPECT_EQ(digest(source), digest(family().render(candidate.config, problem)));
    digests.insert(digest(source));
    texts.insert(
        source.entry.substr(source.entry.find('\n')));  // the launch may read a field alone
  });
  EXPECT_EQ(digests.size(), texts.size());
}

TEST_P(FamilyContract, LaunchesFitTheArch) {
  for_each_candidate([&](const Problem& problem, const Candidate& candidate,
                         const DeviceFacts& device) {
    const Arch& arch = device.arch;
    const Launch launch = family().launch(candidate.config, problem, device);
    ASSERT_FALSE(launch.steps.empty());
    const Source source = family().render(candidate.config, problem);
    for (const LaunchStep& step : launch.steps) {
      const std::size_t begin = source.entry.find(step.kernel + "(");
      ASSERT_NE(begin, std::string::npos);
      const std::string arguments = source.entry.substr(begin,
                                                        source.entry.find(')', begin) - begin);
      EXPECT_EQ(arguments.find(','), std::string::npos) << "a kernel takes one argument";
      EXPECT_THAT(source.entry, testing::HasSubstr(fmt::format(") == {});", step.params.size())))
          << "both compilers agree on the argument's size";
      EXPECT_LE(step.smem_bytes, arch.smem_per_block_bytes);
      EXPECT_GE(step.grid.x, 1u);
      EXPECT_LE(step.grid.x, 2147483647u);
      EXPECT_LE(std::max(step.grid.y, step.grid.z), 65535u);
      const unsigned threads = step.block.x * step.block.y * step.block.z;
      EXPECT_EQ(threads % 32, 0u);
      EXPECT_LE(threads, 1024u);
    }
  });
}

TEST_P(FamilyContract, EmptyProblemsLaunchNothingOrFillTheOutput) {
  for_each_candidate(
      [&](const Problem& problem, const Candidate& candidate, const DeviceFacts& device) {
        Problem empty = problem;
        empty.batch = 0;
        EXPECT_TRUE(family().launch(candidate.config, empty, device).steps.empty());
        empty = problem;
        empty.seqlen_q = 0;
        // Keys that no query sees have gradients: zeros.
        EXPECT_EQ(family().launch(candidate.config, empty, device).steps.empty(),
                  !is_backward(problem) && !problem.lengths_after);
        empty = problem;
        empty.seqlen_kv = 0;
        EXPECT_EQ(family().launch(candidate.config, empty, device).steps.empty(),
                  problem.op == Op::kAppend && !problem.lengths_after);
      });
}

TEST_P(FamilyContract, LaunchesOfABucketHaveTheSamePartsWhateverTheirLengths) {
  int compared = 0;
  for_each_candidate(
      [&](const Problem& problem, const Candidate& candidate, const DeviceFacts& device) {
        Problem shorter = problem;
        --shorter.seqlen_kv;
        if (shorter.layout == Layout::kPackedQkv || !is_attention(problem)) --shorter.seqlen_q;
        if (shorter.seqlen_q == 0) return;
        if (bucket(shorter) != bucket(problem)) return;
        const Launch all = family().launch(candidate.config, problem, device);
        const Launch less = family().launch(candidate.config, shorter, device);
        ASSERT_EQ(less.steps.size(), all.steps.size());
        for (std::size_t i = 0; i < all.steps.size(); ++i) {
          EXPECT_EQ(less.steps[i].args, all.steps[i].args) << to_string(problem);
          EXPECT_EQ(less.steps[i].params.size(), all.steps[i].params.size());
          EXPECT_NE(less.steps[i].params, all.steps[i].params) << "lengths are there";
        }
        ++compared;
      });
  EXPECT_GT(compared, 0);
}

TEST_P(FamilyContract, RunsFillInPartsOfTheArgumentThatLieApart) {
  for_each_candidate(
      [&](const Problem& problem, const Candidate& candidate, const DeviceFacts& device) {
        const Launch launch = family().launch(candidate.config, problem, device);
        ASSERT_FALSE(launch.steps.empty());
        EXPECT_FALSE(launch.steps[0].overlaps_previous);
        std::size_t tables = 0;
        for (const LaunchStep& step : launch.steps) {
          EXPECT_EQ(test::argument_fault(step), "");
          EXPECT_EQ(test::parts_of<FwdArgument>(step).size(), is_attention(problem) ? 1u : 0u)
              << "where the tensors are";
          tables += test::places_of(own_argument<bind_rope>(), step).size();
        }
        EXPECT_EQ(tables, problem.rope == Rope::kNone || !is_attention(problem) ? 0u : 1u)
            << "one step rotates";
      });
}

TEST(Registry, GoesTierByTierAndTheOracleEndsIt) {
  EXPECT_TRUE(std::is_sorted(registry().begin(), registry().end(),
                             [](const Family* a, const Family* b) { return a->tier < b->tier; }));
  EXPECT_EQ(registry().back()->tier, Tier::kOracle);
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_regtile_f32"})
    EXPECT_EQ(find_family(name)->tier, Tier::kProduct) << name;
}

TEST(Registry, WhatNeedsQuadraticMemoryMustBeNamed) {
  for (const Family* family : registry()) {
    const std::string op(to_string(family->op)), parts = op == "merge" ? " parts=2" : "";
    const Problem problem = parse_problem(op + " fp16 num_heads=2 seqlen=4096 head_dim=64" + parts);
    const Problem single = parse_problem(op + " fp32 num_heads=2 seqlen=4096 head_dim=64" + parts);
    const DeviceFacts& device = typical_device("90a");
    const Problem& served = rejection(*family, problem, device.arch).empty() ? problem : single;
    const std::vector<Candidate> all = candidates(*family, served, device);
    ASSERT_FALSE(all.empty()) << family->name;
    const Launch launch = family->launch(all.front().config, served, device);
    const std::size_t scores = std::size_t{2} * 4096 * 4096;
    EXPECT_EQ(launch.workspace_bytes >= scores, family->only_named) << family->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, FamilyContract,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
