// near_problem_test.cpp - plans for a bucket without a winner, when problems like it have one. On a
// fake driver and with a fake NVRTC: no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "attnforge/inspect.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;

const Problem kAsked = bucket(
    parse_problem("fwd fp16 batch=2 num_heads=16 seqlen=4096 head_dim=128 causal"));

Problem like_asked(std::int64_t seqlen) {
  Problem problem = kAsked;
  problem.seqlen_q = problem.seqlen_kv = seqlen;
  return problem;
}

class NearProblemTest : public PlanTest {
 protected:
  /// The `rank`-th of those candidates of `tuned` that kAsked has too and that the model does not
  /// veto there, its own choice left out.
  static Candidate welcome(const DeviceFacts& device, const Problem& tuned, std::size_t rank) {
    const std::vector<Candidate> asked = candidates(registry(), kAsked, device);
    std::vector<Candidate> found;
    for (const Candidate& each : candidates(registry(), tuned, device)) {
      const auto same = std::find_if(asked.begin() + 1, asked.end(), [&](const Candidate& other) {
        return other.config == each.config;
      });
      if (same != asked.end() && same->estimate_us <= 1.05 * asked.front().estimate_us)
        found.push_back(each);
    }
    return found.at(rank);
  }

  /// As a search of `tuned` would have left it. Returns its config.
  std::string store_near(const DeviceFacts& device, const Problem& tuned, std::size_t rank) {
    return store_winner(device, tuned, welcome(device, tuned, rank));
  }

  static std::string models_choice(const DeviceFacts& device) {
    return to_string(untuned(registry(), kAsked, device).config);
  }
};

TEST_F(NearProblemTest, NearWinnerAnswersAndIsSaidToBeOne) {
  Device device = open();
  const std::string winner = store_near(device.facts(), like_asked(8192), 0);
  const Plan plan = make_plan(kAsked, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_NE(plan.config(), models_choice(device.facts()));
  EXPECT_EQ(plan.provenance(), Provenance::kNearProblem);
  EXPECT_EQ(plan.measured_us(), 0) << "it was measured for another problem";
}

TEST_F(NearProblemTest, CodeOfANearWinnerNeedsNoCompileWhereOnlyLengthsDiffer) {
  Device device = open();
  const std::string winner = store_near(device.facts(), like_asked(8192), 0);
  make_plan(like_asked(8192), device);
  const Plan plan = make_plan(kAsked, device, no_jit());
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kNearProblem);
}

TEST_F(NearProblemTest, NearestOneAnswersAndTheOwnWinnerBeforeIt) {
  const DeviceFacts facts = open().facts();
  Problem other_dtype = kAsked;
  other_dtype.dtype_q = other_dtype.dtype_k = other_dtype.dtype_v = other_dtype
                                                                        .dtype_o = DType::kBf16;
  const auto answer = [&] {
    Device device = open();
    return make_plan(kAsked, device).config();
  };
  const std::string dtype = store_near(facts, other_dtype, 0);
  EXPECT_EQ(answer(), dtype) << "there is none of this dtype";
  const std::string far = store_near(facts, like_asked(16384), 1);
  EXPECT_EQ(answer(), far);
  const std::string near = store_near(facts, like_asked(8192), 2);
  EXPECT_EQ(answer(), near);
  const std::string own = store_winner(facts, kAsked, welcome(facts, kAsked, 3));
  EXPECT_EQ(answer(), own);
}

TEST_F(NearProblemTest, ConfigThatIsNoCandidateHereIsPassedOver) {
  Device device = open();
  const DeviceFacts& facts = device.facts();
  const Problem nearer = like_asked(512), farther = like_asked(65536);
  const std::vector<Candidate> asked = candidates(registry(), kAsked, facts),
                               others = candidates(registry(), nearer, facts);
  const auto foreign = std::find_if(others.begin(), others.end(), [&](const Candidate& other) {
    return std::none_of(asked.begin(), asked.end(),
                        [&](const Candidate& each) { return each.config == other.config; });
  });
  ASSERT_NE(foreign, others.end());
  store_winner(facts, nearer, *foreign);
  EXPECT_EQ(make_plan(kAsked, device).provenance(), Provenance::kEstimated);
  const std::string second = store_near(facts, farther, 0);
  Device fresh = open();
  EXPECT_EQ(make_plan(kAsked, fresh).config(), second);
}

TEST_F(NearProblemTest, ModelVetoesWhatItThinksMuchSlower) {
  Device device = open();
  const std::vector<Candidate> asked = candidates(registry(), kAsked, device.facts());
  const auto slow = std::find_if(asked.begin(), asked.end(), [&](const Candidate& each) {
    return each.estimate_us > 1.06 * asked.front().estimate_us;
  });
  ASSERT_NE(slow, asked.end());
  store_winner(device.facts(), like_asked(8192), *slow);
  const Plan plan = make_plan(kAsked, device);
  EXPECT_EQ(plan.config(), models_choice(device.facts()));
  EXPECT_EQ(plan.provenance(), Provenance::kEstimated);
}

TEST_F(NearProblemTest, WinnersOfTheLadderAnswerOnlyThoseWhoNameTheirFamily) {
  Device device = open();
  const Problem tuned = like_asked(8192);
  const std::string ladder = store_winner(
      device.facts(), tuned, candidates(*find_family("fwd_wmma"), kAsked, device.facts()).front());
  EXPECT_EQ(make_plan(kAsked, device).provenance(), Provenance::kEstimated);
  const Plan named = make_plan(kAsked, device, with_family("fwd_wmma"));
  EXPECT_EQ(named.config(), ladder);
  EXPECT_EQ(named.provenance(), Provenance::kNearProblem);
  store_near(device.facts(), tuned, 0);
  EXPECT_EQ(make_plan(kAsked, device, with_family("fwd_naive")).provenance(),
            Provenance::kEstimated)
      << "another family's winner is not of the one that was named";
}

TEST_F(NearProblemTest, PolicyCachedOnlyTakesNone) {
  Device device = open();
  store_near(device.facts(), like_asked(8192), 0);
  make_plan(like_asked(8192), device);  // its code is stored
  make_plan(kAsked, device);            // and loaded
  const Error error = error_of([&] { make_plan(kAsked, device, with(Policy::kCachedOnly)); });
  EXPECT_EQ(error.code(), ErrorCode::kNotReady);
}

TEST_F(NearProblemTest, ForcedPlansTakeNone) {
  const DeviceFacts facts = open().facts();
  const std::string winner = store_near(facts, like_asked(8192), 0);
  const ScopedEnvironment scope(
      std::map<std::string, std::string>{{"ATTNFORGE_KERNEL_NAME", "mine"}});
  Device device = open();
  const Plan plan = make_plan(kAsked, device);
  EXPECT_EQ(plan.provenance(), Provenance::kForced);
  EXPECT_EQ(plan.config(), models_choice(facts));
}

TEST_F(NearProblemTest, InspectNamesTheProblemThatItWonOn) {
  const DeviceFacts facts = open().facts();
  const std::string winner = store_near(facts, like_asked(8192), 0);
  const Inspection inspection = inspect(kAsked, facts,
                                        {.cache_path = database(), .compile = false});
  EXPECT_EQ(inspection.config, winner);
  EXPECT_EQ(inspection.provenance, Provenance::kNearProblem);
  EXPECT_THAT(inspection.why, AllOf(HasSubstr(to_string(like_asked(8192))), HasSubstr("us")));
}

}  // namespace
}  // namespace attnforge
