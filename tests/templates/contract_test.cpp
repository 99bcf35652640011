// contract_test.cpp - what family.h promises, checked for every family of the registry on every
// arch. No compiler, no GPU.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "generator/candidates.h"
#include "tests/support/argument_parts.h"
#include "tests/templates/family_on_arch.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

class FamilyContract : public testing::TestWithParam<test::FamilyOnArch> {
 protected:
  const Family& family() const { return *GetParam().family; }
  const DeviceFacts& device() const { return typical_device(GetParam().arch->name); }

  /// The first candidates of every problem that the family serves.
  template <class Visit>
  void for_each_candidate(Visit&& visit) const {
    for (const Problem& problem : test::problems_of(family())) {
      const std::vector<Candidate> found = candidates(family(), problem, device());
      for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), 4); ++i) {
        SCOPED_TRACE(to_string(problem) + "\n  " + to_string(found[i].config));
        visit(problem, found[i]);
      }
    }
  }
};

TEST_P(FamilyContract, ServesProblemsOrSaysWhyNot) {
  int served = 0;
  for (const Problem& problem : test::problems_of(family())) {
    if (rejection(family(), problem, device().arch).empty()) {
      ++served;
      EXPECT_FALSE(candidates(family(), problem, device()).empty()) << to_string(problem);
    }
  }
  if (served == 0) {
    GTEST_SKIP() << family().name << " does not run on sm_" << device().arch.name << ": "
                 << rejection(family(), test::problems_of(family())[0], device().arch);
  }
  EXPECT_GE(served, 8);
}

TEST_P(FamilyContract, ConfigsSurviveTheirText) {
  for_each_candidate([&](const Problem& problem, const Candidate& candidate) {
    EXPECT_EQ(candidate.config.family, family().name);
    const Config again = parse_config(to_string(candidate.config));
    EXPECT_EQ(again, candidate.config);
    EXPECT_EQ(family().reject(again, problem, device()), "");
    EXPECT_GT(candidate.estimate_us, 0);
  });
}

TEST_P(FamilyContract, SourcesAreCompleteInThemselvesAndNamed) {
  std::set<std::string> digests;
  std::set<std::string> texts;
  for_each_candidate([&](const Problem& problem, const Candidate& candidate) {
    const Source source = family().render(candidate.config, problem);
    EXPECT_EQ(source.entry.rfind("// generated: " + to_string(candidate.config) + "\n", 0), 0u);
    EXPECT_EQ(source.text.find("#include"), std::string::npos);
    EXPECT_NE(source.text.find(source.name + "("), std::string::npos);
    EXPECT_EQ(source.name.rfind(family().name, 0), 0u);
    EXPECT_EQ(digest(source), digest(family().render(candidate.config, problem)));
    digests.insert(digest(source));
    texts.insert(to_string(candidate.config));
  });
  EXPECT_EQ(digests.size(), texts.size());
}

TEST_P(FamilyContract, LaunchesFitTheArch) {
  const Arch& arch = device().arch;
  for_each_candidate([&](const Problem& problem, const Candidate& candidate) {
    const Launch launch = family().launch(candidate.config, problem, device());
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
  for_each_candidate([&](const Problem& problem, const Candidate& candidate) {
    Problem empty = problem;
    empty.batch = 0;
    EXPECT_TRUE(family().launch(candidate.config, empty, device()).steps.empty());
    empty = problem;
    empty.seqlen_q = 0;
    EXPECT_TRUE(family().launch(candidate.config, empty, device()).steps.empty());
    empty = problem;
    empty.seqlen_kv = 0;
    EXPECT_FALSE(family().launch(candidate.config, empty, device()).steps.empty());
  });
}

TEST_P(FamilyContract, RunsFillInPartsOfTheArgumentThatLieApart) {
  for_each_candidate([&](const Problem& problem, const Candidate& candidate) {
    const Launch launch = family().launch(candidate.config, problem, device());
    ASSERT_FALSE(launch.steps.empty());
    EXPECT_FALSE(launch.steps[0].overlaps_previous);
    for (const LaunchStep& step : launch.steps) {
      EXPECT_EQ(test::argument_fault(step), "");
      EXPECT_EQ(test::parts_of<FwdArgument>(step).size(), 1u) << "where the tensors are";
      EXPECT_EQ(test::parts_of<RopeArgument>(step).size(), problem.rope == Rope::kNone ? 0u : 1u);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Registry, FamilyContract, testing::ValuesIn(test::families_on_archs()),
                         [](const auto& info) { return test::name_of(info.param); });

}  // namespace
}  // namespace attnforge
