// race_test.cpp - rounds of finalists, one sample each a round, whenever they are stopped.
#include "tuner/search/race.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tuner/fake_evaluator.h"

namespace attnforge {
namespace {

using ::testing::Each;
using testing::FakeClock;
using testing::FakeEvaluator;
using ::testing::SizeIs;

/// Kernels so slow that each is a run of its own: keep_going is asked after every sample.
class RaceTest : public ::testing::Test {
 protected:
  RaceTest() {
    std::vector<Candidate> candidates = testing::fake_candidates();
    candidates.resize(kRacers);
    evaluator.prepare(
        candidates, [] { return true; }, [](std::size_t, const Measurement&) {});
    evaluator.time_us = [](const Config& config) { return 40e3 + config.get("block_n"); };
    for (const Candidate& candidate : candidates) {
      Finalist finalist;
      finalist.config = candidate.config;
      finalist.expected_us = 40e3;
      finalist.samples = {1, 2, 3};  // of an earlier part of the search
      finalist.text = to_string(candidate.config);
      finalists.push_back(finalist);
    }
  }
  /// A final that is stopped when it has asked `questions` times.
  bool race(int questions) {
    std::mt19937_64 random(1);
    return run_final(evaluator, rules, finalists, random, [&] { return questions-- > 0; });
  }

  static constexpr std::size_t kRacers = 3;
  FinalRules rules{.min_rounds = 5, .max_rounds = 9, .max_seconds = 100};
  FakeClock clock;
  FakeEvaluator evaluator{clock};
  std::vector<Finalist> finalists;
};

// A sample is compared with those of its own round.
TEST_F(RaceTest, ARoundThatIsCutCountsForNobody) {
  EXPECT_FALSE(race(0));
  for (const Finalist& each : finalists) EXPECT_THAT(each.samples, SizeIs(0));
  // One question before each round, one after each sample.
  for (const int in_third : {1, 2, 3}) {
    EXPECT_FALSE(race(2 * (1 + int(kRacers)) + in_third));
    for (const Finalist& each : finalists) EXPECT_THAT(each.samples, SizeIs(2)) << in_third;
  }
  EXPECT_EQ(evaluator.sampled, int(0 + 3 * 2 * kRacers + 1 + 2 + 3));
}

TEST_F(RaceTest, WholeRoundsGiveEachOneSampleOfTheFinalAlone) {
  EXPECT_TRUE(race(1000));
  for (std::size_t i = 0; i < kRacers; ++i) {
    EXPECT_THAT(finalists[i].samples,
                SizeIs(::testing::AllOf(::testing::Ge(5u), ::testing::Le(9u))));
    EXPECT_EQ(finalists[i].samples.size(), finalists[0].samples.size());
    EXPECT_THAT(finalists[i].samples, Each(::testing::Gt(1000.0))) << "none of before";
  }
}

TEST_F(RaceTest, SamplesOfWhatWasAskedForAreOfTheSameRounds) {
  evaluator.asked_us = [&](const Config& config) { return evaluator.time_us(config) / 2; };
  rules.asked = true;
  EXPECT_FALSE(race(2 * (1 + int(kRacers)) + 2));
  for (const Finalist& each : finalists) {
    EXPECT_THAT(each.samples, SizeIs(2));
    EXPECT_THAT(each.asked, SizeIs(2)) << "the third round was cut";
  }
  EXPECT_TRUE(race(1000));
  for (const Finalist& each : finalists) {
    EXPECT_EQ(each.asked.size(), each.samples.size());
    EXPECT_NEAR(each.asked.back() / each.samples.back(), 0.5, 0.1);
  }
}

TEST_F(RaceTest, WhoFailsAsAskedEndsTheTimesAsAskedAndStaysInTheRace) {
  evaluator.asked_us = evaluator.time_us;
  evaluator.fails_as_asked = {finalists[1].text};
  rules.asked = true;
  EXPECT_TRUE(race(1000));
  for (const Finalist& each : finalists) {
    EXPECT_FALSE(each.failed);
    EXPECT_EQ(each.failed_as_asked, &each == &finalists[1]);
    EXPECT_THAT(each.asked, SizeIs(0)) << "times of both are not compared with those of one";
    EXPECT_THAT(each.samples, SizeIs(::testing::Ge(5u)));
    EXPECT_EQ(each.samples.size(), finalists[0].samples.size());
  }
  EXPECT_EQ(evaluator.samples_of[finalists[1].text], 3 + int(finalists[1].samples.size()))
      << "it fails in the third round and is not asked again";
}

TEST_F(RaceTest, WhoFailsKeepsWhatItHasAndTheOthersGoOn) {
  evaluator.fails_when_timed = {finalists[1].text};
  EXPECT_TRUE(race(1000));
  EXPECT_TRUE(finalists[1].failed);
  EXPECT_THAT(finalists[1].samples, SizeIs(3));
  EXPECT_GE(finalists[0].samples.size(), 5u);
  EXPECT_EQ(finalists[0].samples.size(), finalists[2].samples.size());
}

}  // namespace
}  // namespace attnforge
