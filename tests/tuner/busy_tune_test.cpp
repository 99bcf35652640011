// busy_tune_test.cpp - a search that another process is at already, on a fake GPU with a fake
// clock.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "attnforge/error.h"
#include "tests/tuner/tune_fixture.h"

namespace attnforge {
namespace {

using namespace testing;

class BusyTuneTest : public TuneTest {
 protected:
  // A second connection stands for another process.
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "attnforge_tune_test_XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    path_ = folder + "/attnforge.db";
    other_ = std::make_unique<Cache>(path_);
    mine_ = std::make_unique<Cache>(path_);
    ASSERT_TRUE(other_->acquire_lease(to_string(problem), device_class(device), 3600));
  }
  void TearDown() override {
    mine_.reset();
    other_.reset();
    std::filesystem::remove_all(folder_);
  }
  void others_result(Rigor rigor = Rigor::kFull) {
    others_try();
    other_->finish(to_string(problem), device_class(device), rigor, kBest);
  }
  void others_try() {
    Try entry;
    entry.problem = to_string(problem);
    entry.device_class = device_class(device);
    entry.config = entry.digest = kBest;
    entry.family = "fake";
    entry.measurement.time_us = 99;
    entry.measurement.samples = 50;
    entry.driver = "driver 1";
    entry.nvrtc = "nvrtc 1";
    other_->put({entry});
  }
  /// A clock with which `happens` after `at_s` of waiting.
  TuneEnvironment first_run_in_which(double at_s, std::function<void()> happens) {
    TuneEnvironment result = environment(clock);
    result.first_run = true;
    result.sleep_s = [this, at_s, happens, start_s = clock.now_s](double seconds) {
      const bool before = clock.now_s - start_s < at_s;
      clock.now_s += seconds;
      if (before && clock.now_s - start_s >= at_s) happens();
    };
    return result;
  }
  void other_leaves() { other_->release_lease(to_string(problem), device_class(device)); }

  std::string folder_, path_;
  std::unique_ptr<Cache> other_, mine_;
};

TEST_F(BusyTuneTest, WaitsForTheOtherAndTakesItsWinner) {
  TuneEnvironment waiting = environment(clock);
  const double start_s = clock.now_s;
  waiting.sleep_s = [&](double seconds) {
    const bool before = clock.now_s - start_s < 3;
    clock.now_s += seconds;
    if (before && clock.now_s - start_s >= 3) {
      others_result();
      other_->release_lease(to_string(problem), device_class(device));
    }
  };
  const TuneResult result = tune_problem(problem, device, *mine_, evaluator, candidates, options,
                                         waiting);
  EXPECT_EQ(result.winner, kBest);
  EXPECT_EQ(evaluator.prepared, 0);
  EXPECT_TRUE(result.complete);
}

TEST_F(BusyTuneTest, WaitEndsWithTheTimeLimit) {
  options.time_limit_s = 2;
  const double start_s = clock.now_s;
  const TuneResult result = tune_problem(problem, device, *mine_, evaluator, candidates, options,
                                         environment(clock));
  EXPECT_LE(clock.now_s - start_s, 2.3);
  EXPECT_GE(clock.now_s - start_s, 1.9);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(evaluator.prepared, 0);
}

// A search that its limit cut short counts as a quick one only. When those that waited for it went
// on with a full one, eight processes tuned one after the other.
TEST_F(BusyTuneTest, FirstRunTakesTheWinnerOfASearchThatWasCutShort) {
  options.time_limit_s = 8;
  const TuneEnvironment waiting = first_run_in_which(7, [&] {
    others_result(Rigor::kQuick);
    other_leaves();
  });
  const double start_s = clock.now_s;
  const TuneResult result = tune_problem(problem, device, *mine_, evaluator, candidates, options,
                                         waiting);
  EXPECT_EQ(result.winner, kBest);
  EXPECT_FALSE(result.other_at_work);
  EXPECT_EQ(evaluator.prepared, 0);
  EXPECT_LE(clock.now_s - start_s, 7.2);
}

TEST_F(BusyTuneTest, FirstRunThatWaitsInVainTakesTheBestSoFarAndTunesNothing) {
  options.time_limit_s = 8;
  const double start_s = clock.now_s;
  const TuneResult result = tune_problem(problem, device, *mine_, evaluator, candidates, options,
                                         first_run_in_which(2, [&] { others_try(); }));
  EXPECT_TRUE(result.other_at_work);
  EXPECT_EQ(result.winner, kBest);
  EXPECT_EQ(evaluator.prepared, 0);
  EXPECT_GT(clock.now_s - start_s, kFirstRunShare * 8 + 0.3) << "longer than the other tunes";
  EXPECT_LE(clock.now_s - start_s, kFirstRunWaitShare * 8 + 0.1);
}

TEST_F(BusyTuneTest, FirstRunWhoseTunerDiesTakesOverWithTheTimeThatIsLeft) {
  options.time_limit_s = 8;
  for (const double died_s : {0.5, 3.0, 5.0, 6.5}) {
    SCOPED_TRACE(died_s);
    ASSERT_TRUE(other_->acquire_lease(to_string(problem), device_class(device), 3600));
    FakeEvaluator fresh{clock};
    fresh.digest_suffix = std::to_string(died_s);  // nothing is known of these kernels
    const double start_s = clock.now_s;
    const TuneResult result = tune_problem(problem, device, *mine_, fresh, candidates, options,
                                           first_run_in_which(died_s, [&] { other_leaves(); }));
    EXPECT_NE(result.winner, "");
    EXPECT_FALSE(result.other_at_work);
    EXPECT_GT(fresh.prepared, 0);
    EXPECT_LE(clock.now_s - start_s, kFirstRunShare * 8 + 0.1);
  }
}

TEST_F(BusyTuneTest, LeaseIsGivenBack) {
  other_->release_lease(to_string(problem), device_class(device));
  options.rigor = Rigor::kQuick;
  tune_problem(problem, device, *mine_, evaluator, candidates, options, environment(clock));
  EXPECT_TRUE(other_->acquire_lease(to_string(problem), device_class(device), 1));
}

}  // namespace
}  // namespace attnforge
