// shipped_winners_test.cpp - winners that ship with the library: plans go by them where no database
// has one, and a change of the sources does not void them unseen.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "attnforge/cache.h"
#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "cache/shipped.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/machine_code_digest.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;
/// What ATTNFORGE_SHIPPED_WINNERS is for the length of a test.
struct Named : test::ScopedEnvironment {
  explicit Named(const std::string& path)
      : ScopedEnvironment(std::map<std::string, std::string>{{"ATTNFORGE_SHIPPED_WINNERS", path}}) {
  }
};

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=128 head_dim=64");

class ShippedWinner : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  /// The model's last choice as a winner, so that nothing else comes to it.
  Shipped winner_of_now(const DeviceFacts& gpu) {
    const std::vector<const Family*> families = families_named("", {});
    Shipped winner;
    winner.best.problem = to_string(kProblem);
    winner.best.device_class = device_class(gpu);
    const Config config = candidates(families, kProblem, gpu, {}).back().config;
    winner.best.config = to_string(config);
    const auto [source, sum] = rendered(config, kProblem, {});
    winner.best.digest = sum;
    winner.code = machine_code_digest(compile(source, gpu.arch).bytes);
    winner.best.nvrtc = nvrtc_facts().version_text();
    winner.best.measurement.time_us = 12.5;
    return winner;
  }
  std::string file_of(const Shipped& winner) {
    const std::string path = (folder_ / "winners.jsonl").string();
    std::ofstream(path) << winners_text({&winner, 1});
    return path;
  }
  std::string database() { return (folder_ / "own.db").string(); }

  const fs::path folder_ = fs::path(::testing::TempDir()) /
                           ("attnforge_shipped_winner_test_" + std::to_string(getpid()));
};

TEST_F(ShippedWinner, AnswersAFirstCallWithoutASearch) {
  Device device({.cache_path = database()});
  const Shipped winner = winner_of_now(device.facts());
  const Named named(file_of(winner));
  const Plan plan = make_plan(kProblem, device, {.policy = Policy::kFirstRun});
  EXPECT_EQ(plan.config(), winner.best.config);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_EQ(plan.layer(), Layer::kShipped);
  EXPECT_EQ(plan.measured_us(), 12.5);
  EXPECT_EQ(stats(device).compiles, 1u);
  EXPECT_EQ(stats(device).untuned_plans, 0u);
  EXPECT_EQ(stats(device).shipped_plans, 1u);
  // The code is stored now, so the next process may not even compile.
  Device next({.cache_path = database()});
  EXPECT_EQ(make_plan(kProblem, next, {.policy = Policy::kCachedOnly}).layer(), Layer::kShipped);
  EXPECT_EQ(stats(next).compiles, 0u);
  const Inspection seen = inspect(kProblem, device.facts(), {.cache_path = database()});
  EXPECT_EQ(seen.layer, Layer::kShipped);
  EXPECT_EQ(seen.config, winner.best.config);
}

TEST_F(ShippedWinner, ComesAfterTheUsersOwn) {
  Device device({.cache_path = database()});
  const Named named(file_of(winner_of_now(device.facts())));
  const std::string tuned = tune(kProblem, device, {.rigor = Rigor::kQuick}).winner;
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), tuned);
  EXPECT_EQ(plan.layer(), Layer::kDatabase);
}

TEST_F(ShippedWinner, IsUsedForProblemsThatAreLikeIt) {
  const Problem longer = parse_problem("fwd fp16 num_heads=2 seqlen=256 head_dim=64");
  Device device({.cache_path = database()});
  Shipped winner = winner_of_now(device.facts());
  // What the model would take, since it has a veto.
  winner.best.config = make_plan(longer, device, {.policy = Policy::kEstimate}).config();
  const Named named(file_of(winner));
  Device other({.cache_path = database()});
  const Plan plan = make_plan(longer, other, {.policy = Policy::kEstimate});
  EXPECT_EQ(plan.provenance(), Provenance::kNearProblem);
  EXPECT_EQ(plan.layer(), Layer::kShipped);
}

TEST_F(ShippedWinner, OfAnotherGpuOfTheSameSmCountsAsNear) {
  Device device({.cache_path = database()});
  Shipped winner = winner_of_now(device.facts());
  winner.best.device_class = "NVIDIA H000 sm_90a sms=1 memory_clock_mhz=1 l2_bytes=1";
  const Named named(file_of(winner));
  const Plan plan = make_plan(kProblem, device, {.policy = Policy::kEstimate});
  EXPECT_EQ(plan.config(), winner.best.config);
  EXPECT_EQ(plan.provenance(), Provenance::kNearDevice);
  EXPECT_EQ(plan.layer(), Layer::kShipped);
}

TEST_F(ShippedWinner, StaysOneWhereOnlyItsSourceChanged) {
  Device device({.cache_path = database()});
  Shipped winner = winner_of_now(device.facts());
  winner.best.digest = "of another source";
  const Named named(file_of(winner));
  EXPECT_EQ(make_plan(kProblem, device, {.policy = Policy::kEstimate}).provenance(),
            Provenance::kMeasured);
  winner.code = "of other instructions";
  file_of(winner);
  Device other({.cache_path = database()});
  const Plan plan = make_plan(kProblem, other, {.policy = Policy::kEstimate});
  EXPECT_EQ(plan.provenance(), Provenance::kStale);
  EXPECT_EQ(plan.layer(), Layer::kShipped);
  EXPECT_EQ(plan.config(), winner.best.config);
}

TEST_F(ShippedWinner, CountsAsNoneByTheEnvironment) {
  Device device({.cache_path = database()});
  const Named named("0");
  EXPECT_EQ(make_plan(kProblem, device, {.policy = Policy::kEstimate}).layer(), Layer::kNone);
}

TEST(ReadWinners, IsWhatWasWritten) {
  Shipped winner;
  winner.best.problem = "fwd a";
  winner.best.device_class = "GPU";
  winner.best.config = "family a=1";
  winner.code = "c0de";
  winner.best.rigor = Rigor::kQuick;
  Measurement& m = winner.best.measurement;
  m.time_us = 1.25, m.noise = 0.5, m.samples = 7, m.clock_mhz = 1980;
  const std::string text = winners_text({&winner, 1});
  const std::vector<Shipped> read = read_winners(text);
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(winners_text(read), text);
  EXPECT_EQ(read[0].best.family, "family");
  EXPECT_TRUE(read_winners("").empty());
  try {
    read_winners(text + "{}\n");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 3"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace attnforge
