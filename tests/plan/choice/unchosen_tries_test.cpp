// unchosen_tries_test.cpp - plans for a bucket that was tried but not searched to an end: one
// family alone, one config, a part of an import. On a fake driver and with a fake NVRTC: no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/cache.h"
#include "attnforge/inspect.h"
#include "tests/plan/plan_fixture.h"

namespace attnforge {
namespace {

using namespace test;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const Problem kTuned = bucket(kProblem);

class UnchosenTriesTest : public PlanTest {
 protected:
  static Try try_of(const Candidate& candidate, double time_us, int samples = 7) {
    const DeviceFacts& gpu = facts();
    Try each;
    each.problem = to_string(kTuned);
    each.device_class = device_class(gpu);
    each.config = to_string(candidate.config);
    each.family = candidate.family->name;
    each.digest = digest(candidate.family->render(candidate.config, kTuned));
    each.measurement.time_us = time_us;
    each.measurement.samples = samples;
    return each;
  }
  static const DeviceFacts& facts() {
    static const DeviceFacts gpu = Device({.cache_path = ":memory:"}).facts();
    return gpu;
  }
  static std::vector<Candidate> all() { return candidates(registry(), kTuned, facts()); }
  static Candidate models_choice() { return all().front(); }
  /// The model's favourite of those that it thinks more than 5% slower than its choice, or not so
  /// much.
  static Candidate other(bool slower) {
    const std::vector<Candidate> some = all();
    return *std::find_if(some.begin() + 1, some.end(), [&](const Candidate& each) {
      return slower == (each.estimate_us > 1.05 * some.front().estimate_us);
    });
  }

  void put(const std::vector<Try>& tries) { Cache(database()).put(tries); }
  std::string why() {
    return inspect(kProblem, facts(), {.cache_path = database(), .compile = false}).why;
  }
  void expect_plan(const Candidate& candidate, Provenance provenance,
                   const std::string& family = "") {
    Device device = open();
    const Plan plan = make_plan(kProblem, device, with_family(family));
    EXPECT_EQ(plan.config(), to_string(candidate.config));
    EXPECT_EQ(plan.provenance(), provenance);
  }
};

TEST_F(UnchosenTriesTest, OneTryThatTheModelThinksSlowDoesNotDecide) {
  put({try_of(other(true), 40)});
  expect_plan(models_choice(), Provenance::kEstimated);
  Device device = open();
  EXPECT_EQ(error_of([&] { make_plan(kProblem, device, with(Policy::kCachedOnly)); }).code(),
            ErrorCode::kNotReady);
}

TEST_F(UnchosenTriesTest, NothingIsSaidToBeMeasuredOnlyWhereNothingWas) {
  const auto refusal = [&] {
    Device device = open();
    return std::string(
        error_of([&] { make_plan(kProblem, device, with(Policy::kCachedOnly)); }).what());
  };
  Try estimate = try_of(other(true), 40);
  estimate.estimated = true;
  put({estimate});
  EXPECT_THAT(why(), AllOf(HasSubstr("nothing was measured for it"), HasSubstr("model predicts")));
  EXPECT_THAT(refusal(), HasSubstr("nothing was measured for it"));
  Try measured = try_of(other(true), 40);
  put({measured});
  const char* const said = "of what was measured for it nothing decides (1 try is stored)";
  EXPECT_THAT(why(), AllOf(HasSubstr(said), HasSubstr("model predicts"),
                           Not(HasSubstr("nothing was measured"))));
  EXPECT_THAT(refusal(), AllOf(HasSubstr(said), Not(HasSubstr("nothing was measured"))));
}

TEST_F(UnchosenTriesTest, NorDoesAnImportOfIt) {
  std::stringstream lines;
  put({try_of(other(true), 40)});
  const std::string there = fs::path(database()).parent_path() / "there.db";
  cache_export(database(), lines);
  cache_import(there, lines);
  Device device = open(0, there);
  EXPECT_EQ(make_plan(kProblem, device).config(), to_string(models_choice().config));
}

TEST_F(UnchosenTriesTest, OneThatTheModelThinksAsFastAnswersAndIsNotSaidToHaveWon) {
  put({try_of(other(false), 40)});
  expect_plan(other(false), Provenance::kMeasured);
  EXPECT_THAT(why(), AllOf(HasSubstr("no search ended"), Not(HasSubstr("won"))));
}

TEST_F(UnchosenTriesTest, TheModelsChoiceMeasuredSlowerGivesWay) {
  put({try_of(other(true), 40), try_of(models_choice(), 50)});
  expect_plan(other(true), Provenance::kMeasured);
}

// A time in passing may be 10% too short, and comes after those of races.
TEST_F(UnchosenTriesTest, TheModelsChoiceMeasuredFasterInPassingDoesNot) {
  put({try_of(other(true), 40), try_of(models_choice(), 38, 3)});
  expect_plan(other(true), Provenance::kMeasured);
  put({try_of(models_choice(), 20, 3)});
  expect_plan(models_choice(), Provenance::kMeasured);
}

TEST_F(UnchosenTriesTest, AModelsChoiceThatFailedGivesWay) {
  Try failed = try_of(models_choice(), 0, 0);
  failed.measurement.status = Status::kWrongResult;
  put({try_of(other(true), 40), failed});
  expect_plan(other(true), Provenance::kMeasured);
}

TEST_F(UnchosenTriesTest, WhoNamesAFamilyIsNotGivenItsSlowOneEither) {
  const Candidate own = candidates(*find_family("fwd_mma_sm80"), kTuned, facts()).front();
  const std::vector<Candidate> family = candidates(*own.family, kTuned, facts());
  const auto slow = std::find_if(family.begin(), family.end(), [&](const Candidate& each) {
    return each.estimate_us > 1.05 * own.estimate_us;
  });
  ASSERT_NE(slow, family.end());
  put({try_of(*slow, 40)});
  expect_plan(own, Provenance::kEstimated, "fwd_mma_sm80");
  put({try_of(own, 60)});
  expect_plan(*slow, Provenance::kMeasured, "fwd_mma_sm80");
}

TEST_F(UnchosenTriesTest, AConfigThatNoSearchWouldTryDoesNotAnswer) {
  const std::vector<Candidate> all_of_it = all();
  const Candidate ladder = candidates(*find_family("fwd_wmma"), kTuned, facts()).front();
  put({try_of(ladder, 1)});
  expect_plan(models_choice(), Provenance::kEstimated);
}

TEST_F(UnchosenTriesTest, WhatASearchChoseAnswersWhateverTheModelThinks) {
  const Try won = try_of(other(true), 40);
  put({won});
  Cache(database()).finish(won.problem, won.device_class, Rigor::kFull, won.config);
  expect_plan(other(true), Provenance::kMeasured);
  EXPECT_THAT(why(), HasSubstr("it won a full search of this bucket"));
}

TEST_F(UnchosenTriesTest, WhatASearchOfAllFamiliesChoseAnswersForItsOwnToo) {
  const Candidate own = candidates(*find_family("fwd_mma_sm80"), kTuned, facts()).front();
  const std::vector<Candidate> family = candidates(*own.family, kTuned, facts());
  const Try won = try_of(family.back(), 40);
  ASSERT_GT(family.back().estimate_us, 1.05 * own.estimate_us);
  put({won});
  expect_plan(own, Provenance::kEstimated, "fwd_mma_sm80");
  Cache(database()).finish(won.problem, won.device_class, Rigor::kFull, won.config);
  expect_plan(family.back(), Provenance::kMeasured, "fwd_mma_sm80");
}

TEST_F(UnchosenTriesTest, OfStaleTriesOfANamedFamilyTheFastestAnswersAndOneOfTodayBeforeThem) {
  const std::vector<Candidate> family = candidates(*find_family("fwd_mma_sm80"), kTuned, facts());
  std::vector<Try> tries;
  for (std::size_t i = 0; i < 3; ++i) {
    tries.push_back(try_of(family[i], 10.0 * double(3 - i)));  // the model's favourite is slowest
    tries.back().digest += "changed";
  }
  put(tries);
  expect_plan(family[2], Provenance::kStale, "fwd_mma_sm80");
  put({try_of(family[0], 25)});
  expect_plan(family[0], Provenance::kMeasured, "fwd_mma_sm80");
}

}  // namespace
}  // namespace attnforge
