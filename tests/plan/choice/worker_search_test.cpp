// worker_search_test.cpp - searches whose candidates fault, hang and crash, end to end: the program
// attnforge as worker on a fake GPU, whose faults $FAKE_FAULTS gives to configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "plan/device_state.h"
#include "tests/support/environment.h"
#include "tests/support/fake_cuda.h"
#include "tuner/search/choices.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
using Variables = std::map<std::string, std::string>;

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=1024 head_dim=64");

class WorkerSearchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_worker_search_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    fake_cuda().reset();
  }
  void TearDown() override { fs::remove_all(folder_); }

  Device device() {
    return Device({.cache_path = (folder_ / "a.db").string(),
                   .log = [this](LogLevel, std::string_view message) {
                     const std::lock_guard lock(mutex_);
                     log_ += std::string(message) + "\n";
                   }});
  }

  /// The configs that a quick search of kProblem tries, the untuned one first.
  std::vector<std::string> tried(Device& device) {
    const DeviceState& state = state_of(device);
    const auto all = candidates(families_named("", {}), kProblem, state.facts, {});
    std::vector<std::string> texts;
    for (const std::size_t seed : seeds(all, Rigor::kQuick))
      texts.push_back(to_string(all[seed].config));
    return texts;
  }

  static double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::mutex mutex_;
  std::string log_;

 private:
  fs::path folder_;
  test::ScopedEnvironment environment_{{{"ATTNFORGE_WORKER", ATTNFORGE_PROGRAM},
                                        {"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                        {"ATTNFORGE_LOG", "info"}}};
};

TEST_F(WorkerSearchTest, AFirstRunIsMadeByWorkersAndTouchesNoGpuHere) {
  Device here = device();
  const Plan plan = make_plan(kProblem, here, {.policy = Policy::kFirstRun});
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured) << log_;
  EXPECT_GT(plan.measured_us(), 0);
  EXPECT_EQ(fake_cuda().launches(), 0) << "no candidate ran in this process";
  EXPECT_EQ(fake_cuda().loads(), 1) << "the winner alone was loaded";
  Device next = device();
  EXPECT_EQ(make_plan(kProblem, next, {.policy = Policy::kCachedOnly}).config(), plan.config());
}

// What the GPU, the driver and the compiler can do to a search costs a try, and is recorded.
TEST_F(WorkerSearchTest, EachFaultIsAFailedTry) {
  Device here = device();
  const std::vector<std::string> configs = tried(here);
  const std::pair<const char*, Status> kFaults[] = {
      {"illegal", Status::kLaunchError},        {"hang", Status::kTimedOut},
      {"crash", Status::kLaunchError},          {"load_crash", Status::kLaunchError},
      {"memory", Status::kLaunchError},         {"compile_error", Status::kCompileError},
      {"compile_crash", Status::kCompileError}, {"compile_memory", Status::kCompileError}};
  ASSERT_GT(configs.size(), std::size(kFaults) + 1);
  std::string faults;
  std::map<std::string, Status> expected;
  for (std::size_t i = 0; i < std::size(kFaults); ++i) {
    faults += std::string(kFaults[i].first) + "=" + configs[i + 1] + ";";
    expected[configs[i + 1]] = kFaults[i].second;
  }
  const test::ScopedEnvironment with_faults(Variables{{"FAKE_FAULTS", faults}});
  const TuneResult result = tune(kProblem, here, {.rigor = Rigor::kQuick});
  EXPECT_TRUE(result.complete);
  EXPECT_GE(result.failed, static_cast<int>(expected.size()));
  EXPECT_FALSE(expected.contains(result.winner)) << result.winner;
  std::size_t seen = 0;
  for (const Trial& trial : result.trials) {
    const auto fault = expected.find(trial.config);
    const Status status = fault == expected.end() ? Status::kOk : fault->second;
    seen += fault != expected.end();
    EXPECT_EQ(trial.measurement.status, status) << trial.config << "\n"
                                                << faults << "\n"
                                                << trial.measurement.detail;
  }
  EXPECT_EQ(seen, expected.size());
  EXPECT_EQ(fake_cuda().launches(), 0);
  EXPECT_EQ(make_plan(kProblem, here).config(), result.winner) << "this process goes on";
}

// A compile of a minute, a driver that does not return, a kernel without end: the time limit holds
// all the same.
TEST_F(WorkerSearchTest, AFirstRunEndsInTimeWhateverHappens) {
  for (const char* fault : {"compile_hang", "stuck", "hang", "illegal", "compile_crash"}) {
    Device here({.cache_path = ":memory:"});
    const std::vector<std::string> configs = tried(here);
    std::string faults;
    for (std::size_t i = 1; i < 4; ++i) faults += std::string(fault) + "=" + configs[i] + ";";
    const test::ScopedEnvironment with_faults(Variables{{"FAKE_FAULTS", faults}});
    const Clock::time_point start = Clock::now();
    const Plan plan = [&] {
      try {
        return make_plan(kProblem, here, {.policy = Policy::kFirstRun, .time_limit_s = 4});
      } catch (const Error& error) {
        ADD_FAILURE() << fault << ": " << error.what();
        throw;
      }
    }();
    EXPECT_LT(seconds_since(start), 4.3) << fault;
    EXPECT_EQ(fake_cuda().launches(), 0) << fault;
  }
}

TEST_F(WorkerSearchTest, WhereTheWorkersTensorsDoNotFitTheEstimateAnswers) {
  const test::ScopedEnvironment little(Variables{{"FAKE_GPU_FREE_MB", "500"}});
  Device here = device();
  const Plan plan = make_plan(kProblem, here, {.policy = Policy::kFirstRun});
  EXPECT_NE(plan.provenance(), Provenance::kMeasured);
  EXPECT_THAT(log_, HasSubstr("GiB are free"));
}

TEST_F(WorkerSearchTest, WithoutAProgramAFirstRunGoesByWhatWasTunedBefore) {
  const test::ScopedEnvironment none(Variables{{"ATTNFORGE_WORKER", "none"}});
  {
    Device here = device();
    const Plan plan = make_plan(kProblem, here, {.policy = Policy::kFirstRun});
    EXPECT_EQ(plan.provenance(), Provenance::kEstimated);
    EXPECT_THAT(log_, HasSubstr("ATTNFORGE_WORKER=none"));
    EXPECT_THAT(log_, Not(HasSubstr("candidates")));
    EXPECT_EQ(fake_cuda().launches(), 0);
    const TuneResult result = tune(kProblem, here, {.rigor = Rigor::kQuick});
    EXPECT_NE(result.winner, "") << "a caller who asks for a search gets it";
    EXPECT_GT(fake_cuda().launches(), 0);
  }
  Device next = device();
  EXPECT_EQ(make_plan(kProblem, next, {.policy = Policy::kFirstRun}).provenance(),
            Provenance::kMeasured);
}

TEST_F(WorkerSearchTest, AProgramThatIsNoWorkerCostsNoPlan) {
  const test::ScopedEnvironment mute(Variables{{"ATTNFORGE_WORKER", "/bin/true"}});
  Device here = device();
  EXPECT_EQ(make_plan(kProblem, here, {.policy = Policy::kFirstRun}).provenance(),
            Provenance::kEstimated);
  EXPECT_THAT(log_, HasSubstr("was not tuned"));
  const test::ScopedEnvironment absent(Variables{{"ATTNFORGE_WORKER", "/nowhere/attnforge"}});
  EXPECT_THROW(device(), Error);
}

}  // namespace
}  // namespace attnforge
