// worker_search_test.cpp - searches whose candidates fault, hang and crash, end to end: the program
// attnforge as worker on a fake GPU, whose faults $FAKE_FAULTS gives to configs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "tests/support/environment.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/program_beside.h"
#include "tuner/search/choices.h"
#include "tuner/worker/serve.h"

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
  test::ScopedEnvironment environment_{{{"ATTNFORGE_WORKER", test::program_beside("attnforge")},
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
  constexpr double kLimit = 1;  // which the test waits for, where a fault hangs
  for (const char* fault : {"compile_hang", "stuck", "hang", "illegal", "compile_crash"}) {
    Device here({.cache_path = ":memory:"});
    const std::vector<std::string> configs = tried(here);
    std::string faults;
    for (std::size_t i = 1; i < 4; ++i) faults += std::string(fault) + "=" + configs[i] + ";";
    const test::ScopedEnvironment with_faults(Variables{{"FAKE_FAULTS", faults}});
    const Clock::time_point start = Clock::now();
    const Plan plan = [&] {
      try {
        return make_plan(kProblem, here, {.policy = Policy::kFirstRun, .time_limit_s = kLimit});
      } catch (const Error& error) {
        ADD_FAILURE() << fault << ": " << error.what();
        throw;
      }
    }();
    const double seconds = seconds_since(start);
    EXPECT_LT(seconds, kLimit + 0.3) << fault;
    const bool ends = fault == std::string("illegal") || fault == std::string("compile_crash");
    if (!ends) {
      EXPECT_GT(seconds, kLimit / 2) << fault << " was not met";
    }
    EXPECT_EQ(fake_cuda().launches(), 0) << fault;
  }
}

// A driver that does not return: who wants to stop waits for a second, not for the worker's limit.
TEST_F(WorkerSearchTest, ACancelledSearchWaitsForNoStuckWorker) {
  Device here = device();
  const std::vector<std::string> configs = tried(here);
  std::string faults;
  for (const std::string& config : configs) faults += "stuck=" + config + ";";
  const test::ScopedEnvironment with_faults(Variables{{"FAKE_FAULTS", faults}});
  const Clock::time_point start = Clock::now();
  const auto cancelled = [start] { return seconds_since(start) > 0.5; };
  try {
    // Where all is so slow that no worker is at work yet, the search ends by itself.
    EXPECT_EQ(tune(kProblem, here, {.rigor = Rigor::kQuick, .cancelled = cancelled}).winner, "");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("that was asked for while a worker was at work"));
  }
  EXPECT_LT(seconds_since(start), 3);
}

/// Processes that this one has started and that live.
std::vector<pid_t> children() {
  std::vector<pid_t> found;
  for (const auto& thread : fs::directory_iterator("/proc/self/task")) {
    std::ifstream list(thread.path() / "children");
    for (pid_t pid = 0; list >> pid;) found.push_back(pid);
  }
  return found;
}

// Whichever worker is killed, whenever: a search ends with a winner, or in words where four of them
// were killed one after the other, and the next one goes on.
TEST_F(WorkerSearchTest, WorkersMayBeKilledAtAnyMoment) {
  Device here = device();
  std::atomic<bool> over = false;
  int killed = 0;
  std::thread killer([&] {
    std::mt19937 random(7);
    while (!over) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 100));
      const std::vector<pid_t> all = children();
      if (!all.empty() && kill(all[random() % all.size()], SIGKILL) == 0) ++killed;
    }
  });
  int ended = 0;
  for (int round = 0; round < 3; ++round) {
    try {
      ended += tune(kProblem, here, {.rigor = Rigor::kQuick, .retune = true}).winner.empty() ? 0
                                                                                             : 1;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCuda) << error.what();
    }
  }
  over = true;
  killer.join();
  EXPECT_GT(killed, 5);
  EXPECT_TRUE(children().empty());
  EXPECT_NE(tune(kProblem, here, {.rigor = Rigor::kQuick, .retune = true}).winner, "");
  EXPECT_EQ(fake_cuda().launches(), 0);
  std::printf("%d workers were killed, %d of 3 searches had a winner\n", killed, ended);
}

TEST_F(WorkerSearchTest, WhereTheWorkersTensorsDoNotFitTheEstimateAnswers) {
  const test::ScopedEnvironment little(Variables{{"FAKE_GPU_FREE_MB", "500"}});
  Device here = device();
  const Plan plan = make_plan(kProblem, here, {.policy = Policy::kFirstRun});
  EXPECT_NE(plan.provenance(), Provenance::kMeasured);
  EXPECT_THAT(log_, HasSubstr("GiB are free"));
}

TEST_F(WorkerSearchTest, AWorkerTakesNothingForWhatItDoesNotKnow) {
  Device here = device();
  const WorkerProgram& program = state_of(here).worker.program;
  EXPECT_THAT(program.identity, HasSubstr(fmt::format("protocol {}", kWorkerProtocol)));
  WorkerProcess worker(program, WorkerRole::kGpu);
  const auto answer = [&](const Message& message) {
    Message got;
    worker.channel().send(message, 5);
    EXPECT_EQ(worker.channel().receive(got, 20), Channel::Got::kMessage);
    return got;
  };
  ASSERT_EQ(answer(begin_request(program.identity, kProblem, state_of(here).facts, {})),
            Message{"done"});
  const Config config = parse_config(tried(here).front());
  EXPECT_EQ(answer(request("release", std::span(&config, 1))), Message{"done"});
  const Message later = answer(request("sample later", std::span(&config, 1)));
  EXPECT_EQ(later.front(), "error") << "as of a supervisor of another build";
}

TEST_F(WorkerSearchTest, WhileItsStreamIsCapturedTheEstimateAnswers) {
  Device here = device();
  PlanOptions options{.policy = Policy::kFirstRun};
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  const ContextScope scope(state_of(here).context);
  ASSERT_EQ(driver().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  options.stream = stream;
  ASSERT_EQ(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(make_plan(kProblem, here, options).provenance(), Provenance::kEstimated);
  EXPECT_THAT(log_, Not(HasSubstr("candidates")));
  ASSERT_EQ(driver().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(make_plan(kProblem, here, options).provenance(), Provenance::kMeasured);
  driver().cuStreamDestroy(stream);
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

TEST_F(WorkerSearchTest, AGpuOfOneProcessHasNoWorkersUnlessTheyAreNamed) {
  const Variables exclusive = {{"FAKE_COMPUTE_MODE", "3"}, {"ATTNFORGE_WORKER", ""}};
  {
    const test::ScopedEnvironment one_process(exclusive);
    Device here = device();
    EXPECT_EQ(make_plan(kProblem, here, {.policy = Policy::kFirstRun}).provenance(),
              Provenance::kEstimated);
    EXPECT_THAT(log_, HasSubstr("EXCLUSIVE_PROCESS, lets no process but this one"));
    EXPECT_NE(tune(kProblem, here, {.rigor = Rigor::kQuick}).winner, "") << "in this process";
    EXPECT_GT(fake_cuda().launches(), 0);
  }
  const test::ScopedEnvironment mps(Variables{{"FAKE_COMPUTE_MODE", "3"}});
  Device named = device();
  EXPECT_FALSE(state_of(named).worker.program.path.empty());
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
