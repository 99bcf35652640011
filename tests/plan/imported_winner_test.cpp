// imported_winner_test.cpp - winners that another machine measured: an import brings no machine
// code, and one tuning, which measures nothing, makes them ready for plans that may not compile.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"

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

}  // namespace
}  // namespace attnforge
