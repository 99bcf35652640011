// imported_winner_test.cpp - winners that another machine measured: an import brings no machine
// code, and one tuning, which measures nothing, makes them ready for plans that may not compile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/cache.h"
#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=128 head_dim=64");
const PlanOptions kCachedOnly = {.policy = Policy::kCachedOnly};

TEST(ImportedWinner, IsReadyForCachedOnlyAfterATuningThatMeasuresNothing) {
  const fs::path folder = fs::path(::testing::TempDir()) /
                          ("attnforge_imported_winner_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string here = (folder / "here.db").string(), there = (folder / "there.db").string();
  std::stringstream lines;
  std::string winner;
  {
    Device device({.cache_path = here});
    winner = tune(kProblem, device, {.rigor = Rigor::kQuick}).winner;
    EXPECT_EQ(make_plan(kProblem, device, kCachedOnly).config(), winner);
  }
  ASSERT_GT(cache_export(here, lines), 0);
  ASSERT_GT(cache_import(there, lines), 0);
  {
    Device device({.cache_path = there});
    try {
      make_plan(kProblem, device, kCachedOnly);
      ADD_FAILURE() << "an import brings no code";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotReady) << error.what();
      EXPECT_NE(std::string(error.what()).find("attnforge tune"), std::string::npos);
    }
    const TuneResult again = tune(kProblem, device, {.rigor = Rigor::kQuick});
    EXPECT_EQ(again.winner, winner);
    EXPECT_GT(again.tried, 0);
    EXPECT_EQ(again.reused, again.tried) << "nothing is measured again";
  }
  Device device({.cache_path = there});
  const Plan plan = make_plan(kProblem, device, kCachedOnly);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  fs::remove_all(folder);
}

TEST(SiteDatabase, AnswersWhereTheUsersOwnHasNoWinner) {
  const fs::path folder = fs::path(::testing::TempDir()) /
                          ("attnforge_site_database_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string own = (folder / "own.db").string(), site = (folder / "site.db").string();
  const Problem longer = parse_problem("fwd fp16 num_heads=2 seqlen=1024 head_dim=64"),
                near = parse_problem("fwd fp16 num_heads=2 seqlen=512 head_dim=64");
  std::string winner, choice_of_model;
  {
    Device device({.cache_path = site});
    winner = tune(kProblem, device, {.rigor = Rigor::kQuick}).winner;
    choice_of_model = make_plan(longer, device, {.policy = Policy::kEstimate}).config();
    Cache(site).finish(to_string(bucket(near)), device_class(device.facts()), Rigor::kFull,
                       choice_of_model);
  }
  const auto written = fs::last_write_time(site);
  const test::ScopedEnvironment environment(
      std::map<std::string, std::string>{{"ATTNFORGE_SITE_CACHE", site}});
  Device device({.cache_path = own});
  const Plan plan = make_plan(kProblem, device, kCachedOnly);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_EQ(stats(device).compiles, 0u) << "its code is there, too";
  EXPECT_EQ(make_plan(kProblem, device, {.policy = Policy::kFirstRun}).config(), winner);
  const Plan of_near = make_plan(longer, device, {.policy = Policy::kEstimate});
  EXPECT_EQ(of_near.provenance(), Provenance::kNearProblem);
  EXPECT_EQ(of_near.config(), choice_of_model);
  // What is tuned here stands in the user's own database, and comes first.
  const TuneResult result = tune(longer, device, {.rigor = Rigor::kQuick});
  EXPECT_EQ(make_plan(longer, device, kCachedOnly).config(), result.winner);
  EXPECT_EQ(fs::last_write_time(site), written);
  fs::remove_all(folder);
}

TEST(ImportedWinner, ThatASearchWouldLeaveOutIsMeasuredBesideItsCandidates) {
  const fs::path folder = fs::path(::testing::TempDir()) /
                          ("attnforge_needless_winner_test_" + std::to_string(getpid()));
  fs::create_directories(folder);
  const std::string path = (folder / "cache.db").string();
  Device device({.cache_path = path});
  const Family& family = *find_family("fwd_mma_sm80");
  Cuts cuts;
  const std::vector<Candidate> searched = candidates(family, kProblem, device.facts(), &cuts);
  const auto needless = std::ranges::find_if(cuts.configs, [&](const CutCandidate& each) {
    return family.illegal(each.config, kProblem, device.facts()).empty();
  });
  ASSERT_NE(needless, cuts.configs.end());
  Try won;
  won.problem = to_string(bucket(kProblem));
  ASSERT_EQ(won.problem, to_string(kProblem));
  won.device_class = device_class(device.facts());
  won.config = to_string(needless->config);
  won.family = family.name;
  won.digest = digest(family.render(needless->config, kProblem));
  won.nvrtc = nvrtc_facts().version_text();
  won.measurement.time_us = 0.01;
  won.measurement.samples = kRacedSamples;
  {
    Cache cache(path);
    cache.put({won});
    cache.finish(won.problem, won.device_class, Rigor::kQuick, won.config);
  }
  const TuneResult again = tune(kProblem, device, {.rigor = Rigor::kQuick, .retune = true});
  const auto its = [&](const Trial& trial) { return trial.config == won.config; };
  EXPECT_EQ(std::ranges::count_if(again.trials, its), 1) << "what won is asked once more";
  EXPECT_GT(again.tried, 1);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace attnforge
