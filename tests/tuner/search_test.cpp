#include "tuner/search/choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "tests/tuner/fake_evaluator.h"

namespace attnforge {
namespace {

using ::testing::ElementsAre;
using testing::fake_candidates;

Finalist finalist(std::string config, double middle, double spread, unsigned seed,
                  int rounds = 41) {
  Finalist result;
  result.text = std::move(config);
  result.estimate_us = middle;
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(middle, spread * middle);
  for (int i = 0; i < rounds; ++i) result.samples.push_back(normal(random));
  return result;
}

TEST(Seeds, QuickIsTheModelsBestSixAndTheBestOfOtherValues) {
  const auto candidates = fake_candidates();
  const auto indices = seeds(candidates, Rigor::kQuick);
  ASSERT_EQ(indices.size(), 12u);
  std::set<std::pair<std::string, int>> of_six, seen;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto& fields = candidates[indices[i]].config.fields;
    seen.insert(fields.begin(), fields.end());
    if (i >= 6) continue;
    EXPECT_EQ(indices[i], i);
    of_six = seen;
  }
  std::set<std::pair<std::string, int>> of_twelve;
  for (std::size_t i = 0; i < 12; ++i)
    of_twelve.insert(candidates[i].config.fields.begin(), candidates[i].config.fields.end());
  EXPECT_GT(seen.size(), of_six.size());
  EXPECT_GT(seen.size(), of_twelve.size()) << "the model's first twelve are more alike";
  EXPECT_EQ(std::set(indices.begin(), indices.end()).size(), indices.size());
}

TEST(Seeds, FullSeesEveryValueOfEveryAxis) {
  const auto candidates = fake_candidates();
  const auto indices = seeds(candidates, Rigor::kFull);
  EXPECT_EQ(indices.size(), 48u);
  std::set<std::pair<std::string, int>> all, seen;
  for (const Candidate& candidate : candidates)
    all.insert(candidate.config.fields.begin(), candidate.config.fields.end());
  for (std::size_t index : indices) {
    seen.insert(candidates[index].config.fields.begin(), candidates[index].config.fields.end());
  }
  EXPECT_EQ(seen, all);
  EXPECT_EQ(std::set(indices.begin(), indices.end()).size(), indices.size());
}

TEST(Seeds, ExhaustiveIsAllOnce) {
  const auto candidates = fake_candidates();
  auto indices = seeds(candidates, Rigor::kExhaustive);
  std::sort(indices.begin(), indices.end());
  for (std::size_t i = 0; i < candidates.size(); ++i) ASSERT_EQ(indices[i], i);
}

TEST(Seeds, UntunedChoiceIsFirstEvenWhenAnotherFamilyPromisesMore) {
  auto candidates = fake_candidates();
  candidates.resize(3);
  candidates[2].config.family = "other";
  candidates[2].estimate_us = 1e-3;
  EXPECT_THAT(seeds(candidates, Rigor::kQuick), ElementsAre(0, 2, 1));
}

TEST(Neighbours, OneStepOnEachAxis) {
  const auto candidates = fake_candidates();
  const auto at = [&](int m, int n, int stages, int persistent) {
    const Config config{
        "fake", {{"block_m", m}, {"block_n", n}, {"stages", stages}, {"persistent", persistent}}};
    return static_cast<std::size_t>(
        std::find_if(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return c.config == config; }) -
        candidates.begin());
  };
  const auto near = neighbours(candidates, at(128, 96, 3, 1));
  for (std::size_t index :
       {at(64, 96, 3, 1), at(256, 96, 3, 1), at(128, 64, 3, 1), at(128, 128, 3, 1),
        at(128, 96, 2, 1), at(128, 96, 4, 1), at(128, 96, 3, 0)}) {
    EXPECT_THAT(near, ::testing::Contains(index)) << to_string(candidates[index].config);
  }
  EXPECT_EQ(near.size(), 7u + 4u);
  EXPECT_THAT(near, ::testing::Not(::testing::Contains(at(32, 96, 3, 1))));
}

// Where the next value is not legal with all else equal, the one after it is a neighbour.
TEST(Neighbours, StepOverAHole) {
  std::vector<Candidate> candidates(3);
  candidates[0].config = {"f", {{"a", 1}, {"b", 1}}};
  candidates[1].config = {"f", {{"a", 2}, {"b", 2}}};
  candidates[2].config = {"f", {{"a", 3}, {"b", 1}}};
  EXPECT_THAT(neighbours(candidates, 0), ElementsAre(2, 1));
}

TEST(Neighbours, NeverOfAnotherFamily) {
  std::vector<Candidate> candidates(2);
  candidates[0].config = {"f", {{"a", 1}}};
  candidates[1].config = {"g", {{"a", 2}}};
  EXPECT_TRUE(neighbours(candidates, 0).empty());
}

TEST(SelectFinalists, FourAlwaysEightIfClose) {
  EXPECT_THAT(select_finalists(std::vector<double>{100, 300, 200, 400, 500}),
              ElementsAre(0, 2, 1, 3));
  EXPECT_EQ(select_finalists(std::vector<double>(20, 100.0)).size(), 8u);
  EXPECT_THAT(select_finalists(std::vector<double>{100, 101, 102, 103, 104, 106}),
              ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(select_finalists(std::vector<double>{7}), ElementsAre(0));
}

TEST(Decide, ClearlyFasterWins) {
  std::vector<Finalist> finalists = {finalist("a", 110, 0.01, 1), finalist("b", 100, 0.01, 2)};
  finalists[0].incumbent = true;
  EXPECT_EQ(decide(finalists), 1u);
}

TEST(Decide, TieGoesToIncumbentThenUntunedThenEstimateThenText) {
  std::vector<Finalist> finalists = {finalist("d", 100.0, 0.01, 1), finalist("c", 100.2, 0.01, 2),
                                     finalist("b", 100.2, 0.01, 3), finalist("a", 100.2, 0.01, 4)};
  for (Finalist& f : finalists) f.estimate_us = 90;
  EXPECT_EQ(finalists[decide(finalists)].text, "a");
  finalists[2].estimate_us = 80;
  EXPECT_EQ(finalists[decide(finalists)].text, "b");
  finalists[1].untuned = true;
  EXPECT_EQ(finalists[decide(finalists)].text, "c");
  finalists[0].incumbent = true;
  EXPECT_EQ(finalists[decide(finalists)].text, "d");
}

// 4% slower in the middle, with an interval of the ratio that reaches below 1.
TEST(Decide, NoiseCannotKeepASlowIncumbent) {
  std::vector<Finalist> finalists(2);
  finalists[0].text = "slow";
  finalists[0].incumbent = true;
  finalists[0].samples = {104, 90, 118, 104, 96, 112, 104};
  finalists[1].text = "fast";
  finalists[1].samples = std::vector<double>(7, 100.0);
  EXPECT_EQ(finalists[decide(finalists)].text, "fast");
  finalists[0].samples = {101, 90, 118, 101, 96, 112, 101};
  EXPECT_EQ(finalists[decide(finalists)].text, "slow");
}

TEST(Decide, FewSamplesGoByTheirMedians) {
  std::vector<Finalist> finalists = {finalist("a", 101, 0, 1, 1), finalist("b", 100, 0, 2, 1)};
  EXPECT_EQ(decide(finalists), 1u);
  finalists[0] = finalist("a", 100.4, 0, 1, 1);
  finalists[0].untuned = true;
  EXPECT_EQ(decide(finalists), 0u);
}

Finalist untimed(std::string config, double time_us) {
  Finalist result;
  result.text = std::move(config);
  result.time_us = time_us;
  return result;
}

// Times of different moments: the clock of a cold card alone is worth 10%.
TEST(Decide, AFavouriteDoesNotFallByUnpairedTimes) {
  std::vector<Finalist> finalists = {untimed("a", 100), untimed("b", 112)};
  EXPECT_EQ(finalists[decide(finalists)].text, "a");
  finalists[1].untuned = true;
  EXPECT_EQ(finalists[decide(finalists)].text, "b");
  finalists[1].time_us = 160;
  EXPECT_EQ(finalists[decide(finalists)].text, "a") << "twice as slow is no clock";
}

TEST(Decide, AFavouriteThatWasNotInTheRaceDoesNotFallByIt) {
  std::vector<Finalist> finalists = {finalist("a", 100, 0.01, 1), untimed("b", 110)};
  finalists[0].time_us = 95;
  finalists[1].incumbent = true;
  EXPECT_EQ(finalists[decide(finalists)].text, "b");
}

TEST(Decide, AFavouriteFallsByFewRoundsOnlyIfAllSaySo) {
  std::vector<Finalist> finalists = {untimed("challenger", 100), untimed("favourite", 100)};
  finalists[1].untuned = true;
  const auto winner = [&](std::vector<double> challenger, std::vector<double> favourite) {
    finalists[0].samples = std::move(challenger);
    finalists[1].samples = std::move(favourite);
    return finalists[decide(finalists)].text;
  };
  EXPECT_EQ(winner({100, 100, 100}, {104, 104, 104}), "favourite") << "3 rounds, 4%";
  EXPECT_EQ(winner({100, 100, 100}, {110, 110, 110}), "challenger") << "3 rounds, 10%";
  EXPECT_EQ(winner({100, 100, 100}, {110, 120, 101}), "favourite") << "one round of 3 is level";
  EXPECT_EQ(winner({100}, {120}), "favourite") << "one round";
  EXPECT_EQ(winner(std::vector<double>(9, 100), std::vector<double>(9, 103)), "challenger")
      << "9 rounds";
}

TEST(Decide, CountsWhatAConfigLosesInSmallerBatchesOfTheBucket) {
  for (const int rounds : {0, 3, 41}) {
    std::vector<Finalist> both{finalist("a", 100, 0.001, 1, rounds),
                               finalist("b", 102, 0.001, 2, rounds)};
    for (Finalist& each : both) each.time_us = each.estimate_us;
    EXPECT_EQ(both[decide(both)].text, "a") << rounds;
    both[0].spread = 1.1;
    EXPECT_EQ(both[decide(both)].text, "b") << rounds;
  }
}

/// Of the bucket and of what was asked for.
Finalist finalist_of_both(std::string config, double middle, double asked, int rounds) {
  Finalist result = finalist(std::move(config), middle, 0.001, 1, rounds);
  result.asked = finalist("", asked, 0.001, 2, rounds).samples;
  return result;
}

TEST(Decide, NobodyWinsWhoIsSlowerAsAskedThanWhatNeedsNoSearch) {
  for (const int rounds : {3, 41}) {
    std::vector<Finalist> both{finalist_of_both("fast in the bucket", 70, 117, rounds),
                               finalist_of_both("unsearched", 100, 100, rounds),
                               finalist_of_both("the best", 99, 80, rounds)};
    both[1].unsearched = both[1].untuned = true;
    EXPECT_EQ(both[decide(both)].text, "the best") << rounds;
    both.pop_back();
    EXPECT_EQ(both[decide(both)].text, "unsearched") << rounds;
    both[0].incumbent = true;
    EXPECT_EQ(both[decide(both)].text, "unsearched") << rounds << " rounds, stored before";
    both[1].unsearched = false;
    EXPECT_EQ(both[decide(both)].text, "fast in the bucket") << rounds;
  }
}

TEST(Decide, TheBucketAndWhatWasAskedForCountAlike) {
  for (const int rounds : {3, 41}) {
    std::vector<Finalist> both{finalist_of_both("a", 100, 100, rounds),
                               finalist_of_both("b", 80, 110, rounds)};
    EXPECT_EQ(both[decide(both)].text, "b") << rounds;
    both[1] = finalist_of_both("b", 80, 140, rounds);
    EXPECT_EQ(both[decide(both)].text, "a") << rounds;
  }
}

/// `times`, again and again.
std::vector<double> repeated(const std::vector<double>& times, std::size_t rounds) {
  std::vector<double> result;
  for (std::size_t i = 0; i < rounds; ++i) result.push_back(times[i % times.size()]);
  return result;
}

// Each is half as fast again as the one before in two of three rounds.
TEST(Decide, SomebodyWinsWhereEachIsSlowerAsAskedThanAnother) {
  std::vector<Finalist> three;
  for (const char* name : {"a", "b", "c"}) three.push_back(finalist(name, 100, 0.001, 1, 42));
  three[0].asked = repeated({100, 300, 200}, 42);
  three[1].asked = repeated({200, 100, 300}, 42);
  three[2].asked = repeated({300, 200, 100}, 42);
  for (Finalist& each : three) each.unsearched = true;
  EXPECT_EQ(three[decide(three)].text, "a");
}

TEST(Decide, OfTwoOnlyOneIsSlowerAsAsked) {
  std::vector<Finalist> both{finalist("a", 50, 0, 1, 2), finalist("b", 50, 0, 1, 2)};
  both[0].asked = {100, 200};
  both[1].asked = {200, 100};
  for (Finalist& each : both) each.unsearched = true;
  both.push_back(finalist("slow in the bucket", 200, 0, 1, 2));
  both[2].asked = {100, 100};
  EXPECT_EQ(both[decide(both)].text, "a");
}

TEST(Decide, WhoFailedAsAskedDoesNotWinWhereOthersDidNot) {
  std::vector<Finalist> both{finalist("broken", 50, 0.001, 1), finalist("slow", 100, 0.001, 2)};
  both[0].failed_as_asked = both[0].incumbent = true;
  EXPECT_EQ(both[decide(both)].text, "slow");
  both[1].failed_as_asked = true;
  EXPECT_EQ(both[decide(both)].text, "broken") << "it may not be the configs";
}

// Noise of 100% with middle ratios 0.7 and 1.4: their mean is above 1, and that of 1 / 0.7 and
// 1 / 1.4 too.
TEST(Standing, OfTwoOnlyOneIsSlower) {
  Finalist first = finalist("a", 100, 0, 1, 8), other = first;
  other.samples = repeated({70, 140}, 8);
  EXPECT_EQ(standing(first, other), Standing::kUndecided);
  EXPECT_EQ(standing(other, first), Standing::kUndecided);
  other.samples = repeated({73, 145}, 8);
  EXPECT_EQ(standing(first, other), Standing::kSlower);
  EXPECT_EQ(standing(other, first), Standing::kUndecided);
}

TEST(Standing, MoreRoundsDecide) {
  const Finalist first = finalist("a", 100, 0.03, 1, 400);
  const Finalist other = finalist("b", 101.2, 0.03, 2, 400);
  Finalist few = other;
  few.samples.resize(9);
  EXPECT_EQ(standing(first, few), Standing::kUndecided);
  EXPECT_EQ(standing(first, other), Standing::kSlower);
}

}  // namespace
}  // namespace attnforge
