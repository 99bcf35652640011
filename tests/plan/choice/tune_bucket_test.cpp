// tune_bucket_test.cpp - tunings behind plans and of callers, end to end on a fake GPU: their time,
// what they leave of plans made before, and results that cannot be stored.
#include "plan/choice/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "plan/device_state.h"
#include "templates/registry.h"
#include "tests/support/environment.h"
#include "tests/support/error_of.h"
#include "tuner/search/choices.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=128 head_dim=64");
const Problem kOther = parse_problem("fwd fp16 num_heads=2 seqlen=1024 head_dim=64");

class TuneBucketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_tune_bucket_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  static bool is_known(Device& device, const Problem& problem, const std::string& family,
                       const std::string& config) {
    return state_of(device).kernels.find({bucket(problem), family, config}) != nullptr;
  }

 private:
  fs::path folder_;
};

TEST_F(TuneBucketTest, TheTimeOfAFirstRunIsCountedFromTheCall) {
  constexpr double kWaited = 0.5;
  Device device({.cache_path = path("a.db")});
  std::unique_lock other(state_of(device).tuning);
  std::atomic<bool> begun = false;
  double at_first = -1;
  PlanOptions options{.policy = Policy::kFirstRun, .time_limit_s = 60};
  options.on_progress = [&](const Progress& progress) {
    if (at_first < 0) at_first = progress.elapsed_s;
  };
  std::thread plan([&] {
    begun = true;
    make_plan(kProblem, device, options);
  });
  while (!begun) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::duration<double>(kWaited));
  other.unlock();
  plan.join();
  EXPECT_GE(at_first, kWaited / 2) << "it waited for another thread's tuning";
}

// The winner of a near problem, of a database that a search does not start from.
TEST_F(TuneBucketTest, AFirstRunTriesWhatAnEstimateWouldHaveTaken) {
  Device device({.cache_path = path("a.db")});
  const Problem asked = parse_problem("fwd bf16 batch=8 num_heads=32:8 seqlen=1:3000 head_dim=128"),
                shorter = parse_problem(
                    "fwd bf16 batch=8 num_heads=32:8 seqlen=1:2048 head_dim=128");
  const std::vector<Candidate> all = candidates(registry(), bucket(asked), device.facts());
  const std::vector<std::size_t> starts = seeds(all, Rigor::kFull);
  std::size_t near = all.size() - 1;
  while (near > 0 && (all[near].estimate_us > 1.04 * all.front().estimate_us ||
                      std::ranges::find(starts, near) != starts.end()))
    --near;
  ASSERT_GT(near, 0u);
  const std::string config = to_string(all[near].config);
  Cache(path("site.db"))
      .finish(to_string(bucket(shorter)), device_class(device.facts()), Rigor::kFull, config);
  const test::ScopedEnvironment environment(
      std::map<std::string, std::string>{{"ATTNFORGE_SITE_CACHE", path("site.db")}});
  Device here({.cache_path = path("b.db")});
  ASSERT_EQ(make_plan(asked, here, {.policy = Policy::kEstimate}).config(), config);
  make_plan(asked, here, {.policy = Policy::kFirstRun, .time_limit_s = 3});
  const std::vector<Try> tries = state_of(here).cache.tries(to_string(bucket(asked)),
                                                            device_class(here.facts()));
  EXPECT_NE(std::ranges::find(tries, config, &Try::config), tries.end());
}

// A process that waits for this search may have been asked for other sizes of the bucket. The model
// has a choice for these that is none of the bucket's: as a winner the other would not know it.
TEST_F(TuneBucketTest, AFirstRunTriesNothingThatOtherSizesOfItsBucketWouldNot) {
  Device device({.cache_path = path("a.db")});
  const Problem asked = parse_problem("fwd fp16 batch=5 num_heads=8 seqlen=17:1500 head_dim=128");
  const std::vector<Candidate> all = candidates(registry(), bucket(asked), device.facts());
  const auto is_known_to_all = [&](const std::string& config) {
    return std::ranges::find(all, parse_config(config), &Candidate::config) != all.end();
  };
  ASSERT_FALSE(is_known_to_all(to_string(untuned(registry(), asked, device.facts()).config)));
  const Plan plan = make_plan(asked, device, {.policy = Policy::kFirstRun, .time_limit_s = 3});
  ASSERT_EQ(plan.provenance(), Provenance::kMeasured);
  const std::vector<Try> tries = state_of(device).cache.tries(to_string(bucket(asked)),
                                                              device_class(device.facts()));
  EXPECT_GT(tries.size(), 1u);
  for (const Try& each : tries) EXPECT_TRUE(is_known_to_all(each.config)) << each.config;
}

// Half of a tile of 160 keys would be empty at 70 keys, but not at the 128 of their bucket.
TEST_F(TuneBucketTest, AFirstRunSearchesWhereForceLeavesTheModelNothingForTheSizesAsked) {
  const test::ScopedEnvironment environment(
      std::map<std::string, std::string>{{"ATTNFORGE_BLOCK_N", "160"}});
  Device device({.cache_path = path("a.db")});
  DeviceState& state = state_of(device);
  const Problem asked = parse_problem("fwd fp16 num_heads=8 seqlen=70 head_dim=64");
  EXPECT_EQ(error_of([&] { untuned(registry(), asked, state.facts, state.overrides); }).code(),
            ErrorCode::kUnsupported);
  make_plan(asked, device, {.policy = Policy::kFirstRun, .time_limit_s = 3});
  EXPECT_FALSE(
      state.cache.tries(stored_as(bucket(asked), state.overrides), state.device_class).empty());
}

TEST_F(TuneBucketTest, ATuningRenewsThePlansOfItsBucketButForcedOnes) {
  Device device({.cache_path = path("a.db")});
  const std::string forced = make_plan(kProblem, device).config();
  make_plan(kProblem, device, {.family = "fwd_mma_sm80"});
  make_plan(kProblem, device, {.config = forced});
  make_plan(kOther, device);
  const TuneResult result = tune(kProblem, device, {.rigor = Rigor::kQuick});
  EXPECT_FALSE(is_known(device, kProblem, "", ""));
  EXPECT_FALSE(is_known(device, kProblem, "fwd_mma_sm80", ""));
  EXPECT_TRUE(is_known(device, kProblem, "", forced)) << "it stays, whatever is faster";
  EXPECT_TRUE(is_known(device, kOther, "", ""));
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), result.winner);
  EXPECT_EQ(plan.measured_us(), result.winner_us);
}

TEST_F(TuneBucketTest, OfAProblemWithoutWorkSaysSoAndStoresNothing) {
  Device device({.cache_path = path("a.db")});
  for (const char* words : {"fwd bf16 batch=0 seqlen=64", "bwd bf16 batch=0 seqlen=64",
                            "fwd bf16 seqlen=0:64", "append bf16 batch=0 seqlen=1:64"}) {
    const Error error = error_of([&] { tune(parse_problem(words), device); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("has nothing to tune")) << words;
  }
  EXPECT_THAT(state_of(device).cache.chosen(state_of(device).device_class), testing::IsEmpty());
}

// ---- results that cannot be stored ----

TEST_F(TuneBucketTest, WhereNothingCanBeKeptATuningSaysSoOrDoesNotBegin) {
  fs::create_directory(path("folder.db"));
  Device device({.cache_path = path("folder.db")});
  bool begun = false;
  TuneOptions options{.rigor = Rigor::kQuick, .must_keep = true};
  options.on_progress = [&](const Progress&) { begun = true; };
  const Error error = error_of([&] { tune(kProblem, device, options); });
  EXPECT_EQ(error.code(), ErrorCode::kCache);
  EXPECT_THAT(error.what(), HasSubstr("results cannot be stored"));
  EXPECT_THAT(error.what(), HasSubstr("folder.db is a folder"));
  EXPECT_FALSE(begun);
  options.must_keep = false;
  const TuneResult result = tune(kProblem, device, options);
  EXPECT_NE(result.winner, "");
  EXPECT_THAT(result.not_kept, HasSubstr("folder.db is a folder"));
  EXPECT_EQ(make_plan(kProblem, device).config(), result.winner) << "it is kept in memory";
}

TEST_F(TuneBucketTest, ADiskThatFillsUpInASearchIsSaidBesideTheWinner) {
  Device device({.cache_path = path("a.db")});
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  TuneOptions options{.rigor = Rigor::kQuick, .must_keep = true};
  options.on_progress = [&](const Progress&) {
    rlimit full = before;
    full.rlim_cur = 1;
    setrlimit(RLIMIT_FSIZE, &full);
  };
  const TuneResult result = tune(kProblem, device, options);
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(result.winner, "");
  EXPECT_THAT(result.not_kept, HasSubstr("no space is left"));
  EXPECT_EQ(tune(kProblem, device, {.rigor = Rigor::kQuick, .must_keep = true}).not_kept, "");
}

}  // namespace
}  // namespace attnforge
