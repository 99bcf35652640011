// regret_test.cpp - how much slower what a search leaves for plans is than the best that it timed
// and than the model's choice, over many simulated problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "cache/cache.h"
#include "generator/arch.h"
#include "tests/tuner/simulated_gpu.h"
#include "tests/tuner/tune_fixture.h"
#include "tuner/search/tune.h"

namespace attnforge {
namespace {

using namespace testing;

struct Outcome {
  TuneResult result;
  std::vector<std::size_t> sampled;
  std::string for_plans;  // config; "": the model's choice
  double to_best = 1;     // true time of what plans take / of the best that was timed
  double to_model = 1;    // ... / of the model's choice
  double gain = 1;        // true time of the model's choice / of the best that was timed
};

class RegretTest : public TuneTest {
 protected:
  Outcome search(const Draw& truth, unsigned seed, double limit_s, Cache& database,
                 Rigor rigor = Rigor::kQuick) {
    SimulatedGpu gpu(clock, candidates, truth, seed);
    options.seed = seed;
    options.rigor = rigor;
    options.time_limit_s = limit_s;
    Outcome outcome;
    outcome.result = tune_problem(problem, device, database, gpu, candidates, options,
                                  environment(clock));
    outcome.sampled = gpu.sampled;
    const std::optional<Winner> won = database.best(
        to_string(problem), current(), [](std::string_view config) { return std::string(config); });
    if (won) outcome.for_plans = won->best.config;
    const double
        time_us = truth.true_us[won ? gpu.place(parse_config(outcome.for_plans)) : std::size_t{0}];
    double best_us = truth.true_us[0];
    for (std::size_t i : gpu.sampled) best_us = std::min(best_us, truth.true_us[i]);
    outcome.to_best = time_us / best_us;
    outcome.to_model = time_us / truth.true_us[0];
    outcome.gain = truth.true_us[0] / best_us;
    return outcome;
  }
  Outcome search(unsigned seed, double limit_s, Rigor rigor = Rigor::kQuick) {
    Cache empty{":memory:"};
    return search(draw(seed, candidates.size()), seed, limit_s, empty, rigor);
  }
};

// With large tiles, which compile longest, the model's choice was not yet there when half of the
// limit was over, and whatever had compiled by then won: up to 36% slower on an H200.
TEST_F(RegretTest, CutSearchDoesNotTakeWhatCompilesFasterForTheModelsChoice) {
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const double limit_s = seed % 3 == 0 ? 2 : 4;
    const Outcome outcome = search(seed, limit_s, seed % 2 == 0 ? Rigor::kFull : Rigor::kQuick);
    EXPECT_LE(outcome.to_model, 1.03) << "seed " << seed << ", limit " << limit_s << " s";
    EXPECT_LE(outcome.result.elapsed_s, limit_s + 0.1);
  }
}

TEST_F(RegretTest, CutSearchEndsWithRoundsOfTheModelsChoiceAndTheBest) {
  int cut = 0;
  for (unsigned seed = 1; seed <= 12; ++seed) {
    const Outcome outcome = search(seed, 3.5);
    if (outcome.result.complete || outcome.result.winner.empty()) continue;
    ++cut;
    const std::vector<std::size_t>& all = outcome.sampled;
    const auto models = std::count(all.end() - std::min<std::ptrdiff_t>(all.size(), 20), all.end(),
                                   std::size_t{0});
    EXPECT_GE(models, 2) << "seed " << seed;
    EXPECT_GE(outcome.result.trials.front().measurement.samples, kRacedSamples) << "seed " << seed;
  }
  EXPECT_GE(cut, 3);
}

TEST_F(RegretTest, RealGainsAreWon) {
  int gains = 0;
  for (unsigned seed = 6; seed <= 36; seed += 6) {
    const Outcome outcome = search(seed, 4);
    if (outcome.gain < 1.10) continue;
    ++gains;
    EXPECT_LE(outcome.to_best, 1.05) << "seed " << seed;
  }
  EXPECT_GE(gains, 5);
}

// A search that was killed timed the fourth on a cold card, 8% faster than it is: in truth it is 5%
// slower than the model's choice.
TEST_F(RegretTest, TimeOfAColdCardDoesNotChangeAWinner) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    Draw truth = draw(seed, candidates.size());
    truth.noise = 0.01;
    for (std::size_t i = 0; i < truth.true_us.size(); ++i) {
      truth.true_us[i] = i == 0 ? 300 : i == 3 ? 315 : 400;
      truth.clock_gain[i] = 0;  // today the card is warm
    }
    Try cold;
    cold.problem = to_string(problem);
    cold.device_class = device_class(device);
    cold.config = cold.digest = to_string(candidates[3].config);
    cold.family = "fake";
    cold.measurement.time_us = 0.92 * truth.true_us[3];
    cold.measurement.samples = 3;
    cold.driver = "driver 1";
    cold.nvrtc = "nvrtc 1";
    for (const double limit_s : {4.0, 0.0}) {
      Cache database{":memory:"};
      database.put({cold});
      const Outcome outcome = search(truth, seed, limit_s, database);
      EXPECT_EQ(outcome.for_plans, untuned) << "seed " << seed << ", limit " << limit_s << " s";
    }
  }
}

TEST_F(RegretTest, LimitTooShortForTheModelsChoiceLeavesIt) {
  Draw truth = draw(1, candidates.size());
  truth.compile_s[0] = 10;
  Cache empty{":memory:"};
  const Outcome outcome = search(truth, 1, 4, empty);
  EXPECT_EQ(outcome.result.winner, "");
  EXPECT_EQ(outcome.for_plans, "");
  EXPECT_TRUE(empty.tries(to_string(problem), device_class(device)).empty())
      << "plans would take the fastest of them";
  EXPECT_LE(outcome.result.elapsed_s, 4.0);
}

TEST_F(RegretTest, StoredWinnerThatWasNotTimedStays) {
  Draw truth = draw(1, candidates.size());
  const std::string stored = to_string(candidates[7].config);
  search(truth, 1, 0, cache);
  cache.finish(to_string(problem), device_class(device), Rigor::kFull, stored);
  truth.compile_s[7] = 10;
  options.retune = true;
  const Outcome outcome = search(truth, 1, 4, cache);
  EXPECT_EQ(outcome.result.winner, stored);
  EXPECT_EQ(outcome.for_plans, stored);
}

double at(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(fraction * static_cast<double>(values.size() - 1))];
}

// For people: --gtest_also_run_disabled_tests --gtest_filter='RegretTest.*Table'.
TEST_F(RegretTest, DISABLED_Table) {
  constexpr int kSeeds = 400;
  for (const Rigor rigor : {Rigor::kQuick, Rigor::kFull}) {
    for (const double limit_s : {2.0, 4.0, 9.0, 0.0}) {
      std::vector<double> to_best, to_model, elapsed_s, tried;
      int slower = 0, gains = 0, won = 0, empty = 0;
      for (unsigned seed = 1; seed <= kSeeds; ++seed) {
        const Outcome outcome = search(seed, limit_s, rigor);
        to_best.push_back(outcome.to_best);
        to_model.push_back(outcome.to_model);
        elapsed_s.push_back(outcome.result.elapsed_s);
        tried.push_back(outcome.result.tried);
        slower += outcome.to_model > 1.03;
        empty += outcome.result.winner.empty();
        gains += outcome.gain >= 1.10;
        won += outcome.gain >= 1.10 && outcome.to_best <= 1.05;
      }
      std::printf(
          "%-5s, limit %g s: to best %.3f, p95 %.3f, worst %.3f; to the model's choice %.3f, "
          "p95 %.3f, worst %.3f, more than 3%% slower %.1f%%; %d of %d gains of 10%%; %.1f "
          "s, worst %.1f s; %.0f tried, %d without a winner\n",
          std::string(to_string(rigor)).c_str(), limit_s, at(to_best, 0.5), at(to_best, 0.95),
          at(to_best, 1), at(to_model, 0.5), at(to_model, 0.95), at(to_model, 1),
          100.0 * slower / kSeeds, won, gains, at(elapsed_s, 0.5), at(elapsed_s, 1), at(tried, 0.5),
          empty);
    }
  }
}

}  // namespace
}  // namespace attnforge
