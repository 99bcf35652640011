// tune_test.cpp - the tuning loop on a fake GPU with a fake clock.
#include "tuner/search/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "tests/tuner/tune_fixture.h"
#include "tuner/search/choices.h"

namespace attnforge {
namespace {

using namespace testing;

constexpr int kQuickTries = 12 + 8;  // seeds, and neighbours of the fastest

TEST_F(TuneTest, FullFindsTheBestWithinThreePercent) {
  for (unsigned seed = 1; seed <= 10; ++seed) {
    options.seed = seed;
    options.retune = true;
    const TuneResult result = tune();
    EXPECT_LE(true_us(parse_config(result.winner)), 1.03 * 100)
        << result.winner << ", seed " << seed;
    EXPECT_TRUE(result.complete);
    EXPECT_LT(result.tried, result.space) << "a full search is not an exhaustive one";
  }
}

TEST_F(TuneTest, WinnersOfNeighboursAreAmongTheFirst) {
  // kBest is no quick seed: the model is wrong about it.
  const std::string at_2048 = to_string(
      parse_problem("fwd bf16 num_heads=8 seqlen=2048 head_dim=128"));
  cache.finish(at_2048, device_class(device), Rigor::kQuick, "fake of another version");
  cache.finish(at_2048, device_class(device), Rigor::kFull, kBest);
  cache.finish(to_string(parse_problem("fwd bf16 num_heads=8 seqlen=512 head_dim=128")),
               device_class(device), Rigor::kFull, "fake not_legal=1");
  options.rigor = Rigor::kQuick;
  const TuneResult result = tune();
  EXPECT_EQ(result.tried, kQuickTries + 1);
  EXPECT_EQ(result.winner, kBest);
}

TEST_F(TuneTest, NoMoreThanAFewWinnersOfNeighboursAreTried) {
  for (std::size_t i = 0; i < 10; ++i) {
    Problem other = problem;
    other.seqlen_kv = other.seqlen_q = 2048 + 512 * std::int64_t(i);
    cache.finish(to_string(other), device_class(device), Rigor::kFull,
                 to_string(candidates[candidates.size() - 1 - i].config));
  }
  options.rigor = Rigor::kQuick;
  EXPECT_EQ(tune().tried, kQuickTries + 4);
}

TEST_F(TuneTest, ExhaustiveTriesAllAndQuickTwenty) {
  options.rigor = Rigor::kQuick;
  EXPECT_EQ(tune().tried, kQuickTries);
  options.rigor = Rigor::kExhaustive;
  const TuneResult result = tune();
  EXPECT_EQ(result.tried, 144);
  EXPECT_EQ(result.space, 144);
  EXPECT_EQ(result.reused, kQuickTries);
  EXPECT_LE(true_us(parse_config(result.winner)), 1.03 * 100);
}

TEST_F(TuneTest, SameSeedSameResult) {
  const TuneResult first = tune();
  FakeEvaluator again{clock};
  Cache empty{":memory:"};
  const TuneResult second = tune_problem(problem, device, empty, again, candidates, options,
                                         environment(clock));
  EXPECT_EQ(first.winner, second.winner);
  EXPECT_EQ(first.winner_us, second.winner_us);
  EXPECT_EQ(first.tried, second.tried);
}

TEST_F(TuneTest, OneConfigWinsWhateverTheNoiseAmongEquals) {
  evaluator.time_us = [](const Config& config) {
    return config.get("block_m") == 128 ? 100.0 : 150.0;
  };
  std::set<std::string> winners;
  for (unsigned seed = 1; seed <= 8; ++seed) {
    options.seed = seed;
    Cache empty{":memory:"};
    FakeEvaluator fresh{clock};
    fresh.time_us = evaluator.time_us;
    fresh.noise = 0.0005;
    winners.insert(
        tune_problem(problem, device, empty, fresh, candidates, options, environment(clock))
            .winner);
  }
  EXPECT_EQ(winners.size(), 1u);
}

TEST_F(TuneTest, TriesAreStoredWithTheirProvenance) {
  const TuneResult result = tune();
  const std::vector<Try> tries = stored();
  EXPECT_EQ(tries.size(), static_cast<std::size_t>(result.tried));
  for (const Try& entry : tries) {
    EXPECT_EQ(entry.measurement.status, Status::kOk);
    EXPECT_GT(entry.measurement.time_us, 0);
    EXPECT_GE(entry.measurement.samples, 1);
    EXPECT_EQ(entry.measurement.clock_mhz, 1600);
    EXPECT_EQ(entry.family, "fake");
    EXPECT_EQ(entry.digest, entry.config);
    EXPECT_EQ(entry.driver, "driver 1");
    EXPECT_EQ(entry.nvrtc, "nvrtc 1");
    EXPECT_EQ(entry.measured_at.size(), 20u);
  }
  ASSERT_TRUE(winner(Rigor::kFull));
  EXPECT_EQ(winner(Rigor::kFull)->best.config, result.winner);
  EXPECT_GE(winner(Rigor::kFull)->best.measurement.samples, 11);
}

TEST_F(TuneTest, SearchOfOneFamilyDoesNotDecideForAll) {
  const TuneResult all = tune();
  ASSERT_TRUE(winner(Rigor::kFull));
  // Another family, slower, tuned alone afterwards.
  std::vector<Candidate> slow;
  for (Candidate candidate : candidates) {
    if (candidate.config.get("block_m") == 32) slow.push_back(std::move(candidate));
  }
  options.family = "fake";
  options.retune = true;
  const TuneResult one = tune_problem(problem, device, cache, evaluator, slow, options,
                                      environment(clock));
  EXPECT_NE(one.winner, all.winner);
  EXPECT_EQ(winner(Rigor::kFull)->best.config, all.winner);
}

TEST_F(TuneTest, TriesUnderForceAreStoredUnderTheirOwnKey) {
  TuneEnvironment forced = environment(clock);
  forced.stored_as = to_string(problem) + " forced block_n=64";
  const TuneResult result = tune_problem(problem, device, cache, evaluator, candidates, options,
                                         forced);
  EXPECT_TRUE(stored().empty());
  EXPECT_FALSE(winner(Rigor::kQuick));
  EXPECT_EQ(cache.tries(forced.stored_as, device_class(device)).size(),
            static_cast<std::size_t>(result.tried));
  FakeEvaluator again{clock};
  EXPECT_EQ(tune_problem(problem, device, cache, again, candidates, options, forced).winner,
            result.winner);
}

TEST_F(TuneTest, UntunedChoiceIsTimedInTheSameFinal) {
  const TuneResult result = tune();
  EXPECT_EQ(result.untuned, untuned);
  EXPECT_NEAR(result.untuned_us, true_us(parse_config(untuned)), 0.02 * result.untuned_us);
  EXPECT_NEAR(result.winner_us, true_us(parse_config(result.winner)), 0.01 * result.winner_us);
}

TEST_F(TuneTest, TrialsAreBestFirstFailuresLast) {
  evaluator.does_not_compile = {to_string(candidates[2].config)};
  const TuneResult result = tune();
  ASSERT_EQ(result.trials.size(), static_cast<std::size_t>(result.tried));
  for (std::size_t i = 1; i + 1 < result.trials.size(); ++i) {
    EXPECT_LE(result.trials[i - 1].measurement.time_us, result.trials[i].measurement.time_us);
  }
  EXPECT_EQ(result.trials.back().measurement.status, Status::kCompileError);
  EXPECT_EQ(result.trials.back().measurement.detail, "error: fake");
}

TEST_F(TuneTest, FailuresAreDataNotExceptions) {
  evaluator.does_not_compile = {untuned};
  evaluator.does_not_launch = {to_string(candidates[1].config)};
  evaluator.wrong = {kBest, to_string(candidates[2].config)};
  evaluator.fails_when_timed = {to_string(candidates[3].config)};
  const TuneResult result = tune();
  EXPECT_NE(result.winner, kBest);
  EXPECT_EQ(result.failed, 5);
  EXPECT_EQ(result.untuned_us, 0);
  EXPECT_TRUE(result.complete);
  std::map<std::string, Status> status;
  for (const Try& entry : stored()) status[entry.config] = entry.measurement.status;
  EXPECT_EQ(status[untuned], Status::kCompileError);
  EXPECT_EQ(status[to_string(candidates[1].config)], Status::kLaunchError);
  EXPECT_EQ(status[to_string(candidates[2].config)], Status::kWrongResult);
  EXPECT_EQ(status[to_string(candidates[3].config)], Status::kLaunchError);
  EXPECT_EQ(status[kBest], Status::kWrongResult);
}

TEST_F(TuneTest, NothingWorksIsAnEmptyWinner) {
  for (const Candidate& candidate : candidates) evaluator.wrong.insert(to_string(candidate.config));
  const TuneResult result = tune();
  EXPECT_EQ(result.winner, "");
  EXPECT_EQ(result.winner_us, 0);
  EXPECT_EQ(result.failed, result.tried);
  EXPECT_FALSE(winner(Rigor::kQuick));
}

// A race condition may pass the first proof.
TEST_F(TuneTest, WinnerIsProvedAgainAfterTheFinal) {
  evaluator.noise = 0.001;
  const std::string first_winner = tune().winner;
  FakeEvaluator flaky{clock};
  flaky.noise = 0.001;
  flaky.wrong_from_proof[first_winner] = 1;
  options.retune = true;
  const TuneResult result = tune(flaky);
  EXPECT_NE(result.winner, first_winner);
  EXPECT_NE(result.winner, "");
  EXPECT_EQ(result.failed, 1);
}

TEST_F(TuneTest, SlowOnesCostFewSamples) {
  evaluator.time_us = [](const Config& config) {
    return config.get("stages") == 2 ? 50e3 : true_us(config);
  };
  tune();
  for (const auto& [config, count] : evaluator.samples_of) {
    if (parse_config(config).get("stages") == 2) {
      EXPECT_LE(count, 1) << config;
    }
  }
}

TEST_F(TuneTest, ExhaustiveUnloadsWhatCannotWin) {
  options.rigor = Rigor::kExhaustive;
  tune();
  EXPECT_LE(evaluator.loaded_most, 64u + 34u);
  EXPECT_LE(evaluator.loaded.size(), 34u);
}

// ---- what earlier runs left ----

TEST_F(TuneTest, FinishedSearchIsTheAnswerOfTheNext) {
  const TuneResult first = tune();
  FakeEvaluator idle{clock};
  const TuneResult second = tune(idle);
  EXPECT_EQ(idle.prepared + idle.proved + idle.sampled, 0);
  EXPECT_EQ(second.winner, first.winner);
  EXPECT_EQ(second.winner_us, first.winner_us);
  EXPECT_EQ(second.untuned_us, first.untuned_us);
  EXPECT_EQ(second.reused, first.tried);
  EXPECT_EQ(second.trials.size(), first.trials.size());
  EXPECT_TRUE(second.complete);
}

TEST_F(TuneTest, LowerRigorDoesNotAnswerHigher) {
  options.rigor = Rigor::kQuick;
  tune();
  options.rigor = Rigor::kFull;
  const TuneResult result = tune();
  EXPECT_EQ(result.reused, kQuickTries);
  EXPECT_GT(result.tried, kQuickTries);
}

TEST_F(TuneTest, KilledRunResumes) {
  options.rigor = Rigor::kExhaustive;
  options.cancelled = [&] { return evaluator.prepared >= 40; };
  const TuneResult killed = tune();
  EXPECT_FALSE(killed.complete);
  EXPECT_FALSE(winner(Rigor::kQuick));
  const std::size_t kept = stored().size();
  EXPECT_GE(kept, 39u);

  options.cancelled = nullptr;
  FakeEvaluator rest{clock};
  const TuneResult resumed = tune(rest);
  EXPECT_TRUE(resumed.complete);
  EXPECT_EQ(resumed.tried, 144);
  EXPECT_EQ(resumed.reused, static_cast<int>(kept));
  EXPECT_LT(rest.prepared, 144) << "nothing is compiled twice but finalists";
  EXPECT_LE(true_us(parse_config(resumed.winner)), 1.03 * 100);
}

TEST_F(TuneTest, TriesReachTheDatabaseWithinASecond) {
  options.rigor = Rigor::kExhaustive;
  evaluator.compile_s = 0.1;
  int seen = 0;
  options.on_progress = [&](const Progress& progress) {
    if (progress.phase != Progress::Phase::kCompile) return;
    seen = std::max(seen, progress.done);
    EXPECT_GE(static_cast<int>(stored().size()), progress.done - 11)
        << "more than a second's worth is not stored";
  };
  tune();
  EXPECT_GT(seen, 100);
}

TEST_F(TuneTest, BadTriesAreNotRepeated) {
  evaluator.does_not_compile = {untuned};
  options.rigor = Rigor::kQuick;
  tune();
  FakeEvaluator second{clock};
  options.rigor = Rigor::kFull;
  const TuneResult result = tune(second);
  EXPECT_EQ(second.samples_of.count(untuned), 0u);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.trials.back().config, untuned);
  EXPECT_EQ(result.trials.back().measurement.detail, "error: fake");
}

TEST_F(TuneTest, ChangedTemplatesAreMeasuredAgain) {
  const TuneResult first = tune();
  FakeEvaluator changed{clock};
  changed.digest_suffix = " v2";
  const TuneResult result = tune(changed);
  EXPECT_EQ(result.reused, 0);
  EXPECT_EQ(changed.samples_of.count(first.winner), 1u);
}

TEST_F(TuneTest, RetuneMeasuresAgain) {
  tune();
  FakeEvaluator second{clock};
  options.retune = true;
  const TuneResult result = tune(second);
  EXPECT_EQ(result.reused, 0);
  EXPECT_GE(second.prepared, 48);
}

TEST_F(TuneTest, IncumbentWinsTies) {
  evaluator.noise = 0.002;
  evaluator.time_us = [](const Config& config) {
    return config.get("block_m") == 128 ? 100.0 : 150.0;
  };
  options.rigor = Rigor::kQuick;
  const std::string first = tune().winner;

  // As fast as `first`, and slightly faster than all others, but the model's least favourite of the
  // twelve.
  std::string last;
  for (std::size_t i : seeds(candidates, Rigor::kQuick)) {
    if (candidates[i].config.get("block_m") == 128) last = to_string(candidates[i].config);
  }
  ASSERT_NE(last, first);
  FakeEvaluator shifted{clock};
  shifted.noise = 0.002;
  shifted.time_us = [&](const Config& config) {
    return to_string(config) == last ? 90.0 : evaluator.time_us(config);
  };
  options.retune = true;
  ASSERT_EQ(tune(shifted).winner, last);

  FakeEvaluator level{clock};
  level.noise = 0.002;
  level.time_us = evaluator.time_us;
  EXPECT_EQ(tune(level).winner, last) << "noise must not replace a stored winner";
}

TEST_F(TuneTest, IncumbentFromOutsideTheSeedsIsInTheFinal) {
  options.rigor = Rigor::kExhaustive;
  const std::string best = tune().winner;
  options.rigor = Rigor::kQuick;
  options.retune = true;
  FakeEvaluator quick{clock};
  const TuneResult result = tune(quick);
  EXPECT_EQ(result.winner, best);
  EXPECT_LE(result.tried, kQuickTries + 1);
}

// Plans go by the most rigorous search.
TEST_F(TuneTest, WhatARetuneOfLessRigorReportsIsWhatPlansTake) {
  options.rigor = Rigor::kExhaustive;
  const std::string before = tune().winner;
  options.retune = true;
  for (const Rigor rigor : {Rigor::kFull, Rigor::kQuick}) {
    SCOPED_TRACE(to_string(rigor));
    const std::string& faster = to_string(candidates[rigor == Rigor::kFull ? 1 : 2].config);
    FakeEvaluator changed{clock};
    changed.time_us = [&](const Config& config) {
      return to_string(config) == faster ? 50 + double(rigor) : true_us(config);
    };
    options.rigor = rigor;
    const TuneResult result = tune(changed);
    ASSERT_EQ(result.winner, faster);
    ASSERT_NE(result.winner, before);
    const std::optional<Winner> plans = winner(Rigor::kQuick);
    ASSERT_TRUE(plans);
    EXPECT_EQ(plans->best.config, result.winner);
    EXPECT_EQ(plans->best.measurement.time_us, result.winner_us);
    EXPECT_EQ(plans->rigor, Rigor::kExhaustive) << "it took the place of that search's winner";
  }
}

TEST_F(TuneTest, AWinnerThatFailsInARetuneOfLessRigorIsNoWinnerAnyMore) {
  options.rigor = Rigor::kExhaustive;
  const std::string before = tune().winner;
  FakeEvaluator broken{clock};
  broken.wrong = {before};
  options.rigor = Rigor::kQuick;
  options.retune = true;
  const TuneResult result = tune(broken);
  ASSERT_NE(result.winner, before);
  EXPECT_EQ(winner(Rigor::kQuick)->best.config, result.winner);
  for (const Try& each : stored())
    if (each.config == before) EXPECT_EQ(each.measurement.status, Status::kWrongResult);
}

TEST_F(TuneTest, WhatIsNotKeptIsSaid) {
  Cache nowhere("/proc/nowhere/cache.db");
  const TuneResult result = tune_problem(problem, device, nowhere, evaluator, candidates, options,
                                         environment(clock));
  EXPECT_NE(result.winner, "");
  EXPECT_NE(result.not_kept.find("/proc/nowhere/cache.db cannot be used"), std::string::npos);
  EXPECT_EQ(tune().not_kept, "");
}

// Times of a real run, stored, replace the GPU.
TEST_F(TuneTest, SearchReplaysFromStoredTries) {
  options.rigor = Rigor::kExhaustive;
  tune();
  std::map<std::string, Measurement> recorded;
  for (const Try& entry : stored()) recorded[entry.config] = entry.measurement;
  ASSERT_EQ(recorded.size(), 144u);

  FakeEvaluator replay{clock};
  replay.noise = 0;
  replay.first_sample_after_pause_boost = 1;
  replay.time_us = [&](const Config& config) { return recorded.at(to_string(config)).time_us; };
  Cache empty{":memory:"};
  options.rigor = Rigor::kFull;
  const TuneResult result = tune_problem(problem, device, empty, replay, candidates, options,
                                         environment(clock));
  double best_us = 1e9;
  for (const auto& [config, measurement] : recorded)
    best_us = std::min(best_us, measurement.time_us);
  EXPECT_LE(recorded.at(result.winner).time_us, 1.03 * best_us);
  EXPECT_EQ(result.winner_us, recorded.at(result.winner).time_us);
}

// ---- time, and the caller's wish to stop ----

TEST_F(TuneTest, TimeLimitIsKeptAndStillYieldsTheBestSoFar) {
  for (double limit_s : {0.5, 2.0, 8.0}) {
    for (double compile_s : {0.025, 0.2, 2.0}) {
      SCOPED_TRACE(::testing::Message()
                   << "limit " << limit_s << " s, compile " << compile_s << " s");
      Cache empty{":memory:"};
      FakeEvaluator fresh{clock};
      fresh.compile_s = compile_s;
      options.time_limit_s = limit_s;
      options.rigor = Rigor::kExhaustive;
      const double start_s = clock.now_s;
      const TuneResult result = tune_problem(problem, device, empty, fresh, candidates, options,
                                             environment(clock));
      EXPECT_LE(clock.now_s - start_s, limit_s + 0.3);
      EXPECT_NEAR(result.elapsed_s, clock.now_s - start_s, 1e-9);
      if (compile_s < 0.75 * limit_s) {
        EXPECT_NE(result.winner, "");
      }
    }
  }
}

TEST_F(TuneTest, RunCutByItsLimitCountsAsAQuickOne) {
  options.time_limit_s = 4;
  options.rigor = Rigor::kExhaustive;
  const TuneResult result = tune();
  EXPECT_FALSE(result.complete);
  EXPECT_LT(result.tried, 144);
  EXPECT_FALSE(winner(Rigor::kFull));
  ASSERT_TRUE(winner(Rigor::kQuick));
  EXPECT_EQ(winner(Rigor::kQuick)->best.config, result.winner);
}

TEST_F(TuneTest, QuickSearchThatWasCutIsWhatPlansTakeAndGoesOn) {
  options.time_limit_s = 2;
  options.rigor = Rigor::kQuick;
  evaluator.compile_s = 0.25;
  const TuneResult cut = tune();
  EXPECT_FALSE(cut.complete);
  EXPECT_LT(cut.tried, 12);
  ASSERT_TRUE(winner(Rigor::kQuick));
  EXPECT_EQ(winner(Rigor::kQuick)->best.config, cut.winner);

  options.time_limit_s = 0;
  const TuneResult rest = tune();
  EXPECT_EQ(rest.tried, kQuickTries);
  EXPECT_EQ(rest.reused, cut.tried);
  FakeEvaluator idle{clock};
  tune(idle);
  EXPECT_EQ(idle.prepared, 0);
}

TEST_F(TuneTest, SearchThatWasCutSaysWhatIsLeft) {
  options.time_limit_s = 4;
  options.rigor = Rigor::kExhaustive;
  evaluator.compile_s = 0.1;
  const TuneResult cut = tune();
  EXPECT_FALSE(cut.complete);
  EXPECT_EQ(cut.left, 144 - cut.tried);
  EXPECT_NEAR(cut.left_s, 0.12 * cut.left, 0.02 * cut.left);

  options.time_limit_s = 0;
  const double before_s = clock.now_s;
  const TuneResult rest = tune();
  EXPECT_EQ(rest.left, 0);
  EXPECT_EQ(rest.left_s, 0);
  EXPECT_NEAR(clock.now_s - before_s, cut.left_s, 0.3 * cut.left_s);
}

TEST_F(TuneTest, CancelStopsInEveryPhase) {
  for (double after_s = 0.0; after_s < 5.0; after_s += 0.13) {
    Cache empty{":memory:"};
    FakeEvaluator fresh{clock};
    const double start_s = clock.now_s;
    options.cancelled = [&] { return clock.now_s - start_s >= after_s; };
    const TuneResult result = tune_problem(problem, device, empty, fresh, candidates, options,
                                           environment(clock));
    EXPECT_LE(clock.now_s - start_s, after_s + 0.3) << "cancelled after " << after_s << " s";
    EXPECT_EQ(empty.tries(to_string(problem), device_class(device)).size(),
              static_cast<std::size_t>(result.tried));
    if (result.tried > result.failed) {
      EXPECT_NE(result.winner, "");
    }
  }
}

TEST_F(TuneTest, HangingKernelEndsTheRunAfterItsTriesAreStored) {
  evaluator.hangs = {to_string(candidates[5].config)};
  try {
    tune();
    FAIL() << "a lost GPU is an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCuda);
    EXPECT_NE(std::string(error.what()).find("restart the process"), std::string::npos)
        << error.what();
  }
  ASSERT_EQ(stored().size(), 6u);
  FakeEvaluator second{clock};
  second.hangs = evaluator.hangs;
  const TuneResult result = tune(second);
  EXPECT_EQ(result.failed, 1);
  EXPECT_EQ(result.trials.back().measurement.status, Status::kTimedOut);
  EXPECT_TRUE(result.complete);
}

TEST_F(TuneTest, HangInTheRaceIsRecordedForTheCulpritAlone) {
  evaluator.hangs_when_timed = {to_string(candidates[5].config)};
  EXPECT_THROW(tune(), Error);
  int failures = 0;
  for (const Try& entry : stored()) {
    if (entry.measurement.status == Status::kOk) continue;
    ++failures;
    EXPECT_EQ(entry.config, to_string(candidates[5].config));
    EXPECT_EQ(entry.measurement.status, Status::kTimedOut);
  }
  EXPECT_EQ(failures, 1);
}

TEST_F(TuneTest, WinnersCodeIsKept) {
  const TuneResult result = tune();
  EXPECT_EQ(evaluator.kept, std::set<std::string>{result.winner});
}

TEST_F(TuneTest, ProgressIsOrderedAndNotTooOften) {
  std::vector<Progress> reports;
  std::vector<double> times;
  options.on_progress = [&](const Progress& progress) {
    reports.push_back(progress);
    times.push_back(clock.now_s);
  };
  const TuneResult result = tune();
  ASSERT_GT(reports.size(), 5u);
  for (std::size_t i = 1; i < reports.size(); ++i) {
    if (i + 1 < reports.size()) {
      EXPECT_GE(times[i] - times[i - 1], 0.0999);
    }
    EXPECT_LE(reports[i].done, reports[i].total);
    EXPECT_GE(reports[i].elapsed_s, reports[i - 1].elapsed_s);
  }
  EXPECT_EQ(reports.back().best_config, result.winner);
  EXPECT_EQ(reports.back().best_us, result.winner_us);
  EXPECT_EQ(reports.back().default_us, result.untuned_us);
}

TEST_F(TuneTest, FirstRunEndsBeforeItsLimitHoweverSlowCompilesAndKernelsAre) {
  options.time_limit_s = 8;
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = true;
  for (const double compile_s : {0.025, 0.3, 2.0}) {
    for (const double times : {1.0, 100.0, 3000.0}) {
      for (const double spent_s : {0.0, 3.0}) {
        SCOPED_TRACE(::testing::Message() << "compile " << compile_s << " s, kernels " << times
                                          << " times slower, " << spent_s << " s spent before");
        Cache empty{":memory:"};
        FakeEvaluator slow{clock};
        slow.compile_s = compile_s;
        slow.time_us = [&](const Config& config) { return times * true_us(config); };
        first_run.spent_s = spent_s;
        const double start_s = clock.now_s - spent_s;
        const TuneResult result = tune_problem(problem, device, empty, slow, candidates, options,
                                               first_run);
        const double run_s = 1e-6 * times * 300;
        EXPECT_LE(clock.now_s - start_s, kFirstRunShare * 8 + 0.1 + run_s);
        ASSERT_NE(result.winner, "");
        const std::optional<Winner> noted = empty.best(
            to_string(problem), current(),
            [](std::string_view config) { return std::string(config); }, Rigor::kQuick);
        ASSERT_TRUE(noted) << "the others would tune again";
        EXPECT_EQ(noted->best.config, result.winner);
      }
    }
  }
}

// The bucket of 5 sequences of 78 queries is 6 of 128: what fills the GPU there is not the fastest
// here.
TEST_F(TuneTest, FirstRunIsNotSlowerAsAskedThanWhatNeedsNoSearch) {
  options.time_limit_s = 8;
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = true;
  ASSERT_EQ(tune_problem(problem, device, cache, evaluator, candidates, options, first_run).winner,
            kBest);
  const Config chosen = parse_config("fake block_m=32 block_n=32 stages=2 persistent=0");
  const auto as_asked = [&](const Config& config) {
    return config == chosen ? 60 : config.get("block_m") == 128 ? 90 : 70;
  };
  for (const double slower : {1.0, 1.3}) {  // than others, in the bucket
    SCOPED_TRACE(slower);
    Cache empty{":memory:"};
    FakeEvaluator both{clock};
    both.asked_us = as_asked;
    both.time_us = [&](const Config& config) {
      return config == chosen ? 100 * slower : true_us(config);
    };
    first_run.unsearched = {to_string(chosen)};
    first_run.times_asked = true;
    const TuneResult result = tune_problem(problem, device, empty, both, candidates, options,
                                           first_run);
    EXPECT_EQ(result.winner, to_string(chosen));
    EXPECT_NEAR(result.winner_us, 100 * slower, 5) << "the time that is kept is the bucket's";
    const std::optional<Winner> noted = empty.best(
        to_string(problem), current(), [](std::string_view config) { return std::string(config); },
        Rigor::kQuick);
    ASSERT_TRUE(noted);
    EXPECT_EQ(noted->best.config, to_string(chosen));
  }
}

// Of a search that was killed times are known, and there is time to load two of three again.
TEST_F(TuneTest, FirstRunTakesNobodyButAFavouriteWhoWasNotInTheRace) {
  const std::vector<Candidate> three = {
      candidates[0], candidates[1], {&testing::fake_family(), parse_config(kBest), 1e3}};
  const auto times = [&](double best_us, double unsearched_us) {
    return [=, this](const Config& config) {
      if (to_string(config) == kBest) return best_us;
      return config == three[1].config ? unsearched_us : 20e3;
    };
  };
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = true;
  first_run.unsearched = {to_string(three[1].config)};
  options.time_limit_s = 8;
  options.cancelled = [&] { return evaluator.sampled >= 3 * 3; };
  evaluator.time_us = times(9200, 9700);  // of another heat
  tune_problem(problem, device, cache, evaluator, three, options, first_run);
  ASSERT_EQ(stored().size(), 3u);
  options.cancelled = {};
  FakeEvaluator slow{clock};
  slow.compile_s = 3;
  slow.time_us = times(10000, 10500);
  EXPECT_EQ(tune_problem(problem, device, cache, slow, three, options, first_run).winner, kBest);
  EXPECT_EQ(slow.prepared, 2);
}

// A kernel that breaks at sizes that nothing was proved for is not what a call of these runs. It
// may be the best of what is stored for the bucket.
TEST_F(TuneTest, FirstRunDoesNotTakeWhatFailsAsAskedNorStoresThatItFailed) {
  options.time_limit_s = 8;
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = first_run.times_asked = true;
  evaluator.asked_us = evaluator.time_us;
  evaluator.fails_as_asked = {kBest};
  const TuneResult result = tune_problem(problem, device, cache, evaluator, candidates, options,
                                         first_run);
  EXPECT_NE(result.winner, kBest);
  EXPECT_LT(result.winner_us, 110);
  EXPECT_EQ(result.failed, 0);
  const std::vector<Try> tries = stored();
  const auto best = std::ranges::find(tries, kBest, &Try::config);
  ASSERT_NE(best, tries.end());
  EXPECT_EQ(best->measurement.status, Status::kOk);
  EXPECT_GE(best->measurement.samples, 11) << "it went on in the bucket's final";
}

// As a plan without a search takes it: of winners that ship, which a search does not start from.
TEST_F(TuneTest, FirstRunTriesWhatNeedsNoSearch) {
  options.time_limit_s = 8;
  const Config near = parse_config("fake block_m=32 block_n=32 stages=2 persistent=0");
  evaluator.time_us = [&](const Config& config) { return config == near ? 90 : true_us(config); };
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = true;
  first_run.unsearched = {"fake of another version", to_string(near)};
  EXPECT_EQ(tune_problem(problem, device, cache, evaluator, candidates, options, first_run).winner,
            to_string(near));
}

// A final of both takes twice as long; of slow kernels, 100 ms here, it is of the bucket alone.
TEST_F(TuneTest, FirstRunThatTimesWhatWasAskedForEndsBeforeItsLimit) {
  options.time_limit_s = 8;
  TuneEnvironment first_run = environment(clock);
  first_run.first_run = true;
  first_run.unsearched = {to_string(candidates[1].config)};
  first_run.times_asked = true;
  for (const double times : {1.0, 100.0, 1000.0}) {
    SCOPED_TRACE(times);
    Cache empty{":memory:"};
    FakeEvaluator slow{clock};
    slow.time_us = [&](const Config& config) { return times * true_us(config); };
    if (times < 1000) slow.asked_us = slow.time_us;
    const double start_s = clock.now_s;
    const TuneResult result = tune_problem(problem, device, empty, slow, candidates, options,
                                           first_run);
    EXPECT_LE(clock.now_s - start_s, kFirstRunShare * 8 + 0.1 + 2e-6 * times * 300);
    EXPECT_NE(result.winner, "");
  }
}

}  // namespace
}  // namespace attnforge
