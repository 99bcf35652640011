// fork_test.cpp - a child that was forked off a process with a GPU open: it is refused in words,
// and leaves the parent's lease and database whole. On a fake driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "attnforge/device_memory.h"
#include "attnforge/inspect.h"
#include "attnforge/tune.h"
#include "tests/plan/plan_fixture.h"

namespace attnforge {
namespace {

using namespace test;

/// "" if `work` throws the Error of a forked child.
std::string missing_refusal(const char* what, const std::function<void()>& work) {
  try {
    work();
    return std::string(what) + " was not refused\n";
  } catch (const Error& error) {
    const std::string said = error.what();
    if (error.code() == ErrorCode::kCuda && said.find("was forked from process") != said.npos)
      return "";
    return std::string(what) + ": " + said + "\n";
  }
}

/// Runs `work` in a child, which says what went wrong on standard error. Ends the child's life.
bool all_well_in_child(const std::function<std::string()>& work) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::string wrong;
    try {
      wrong = work();
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    std::fprintf(stderr, "%s", wrong.c_str());
    _exit(wrong.empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return child > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

using ForkTest = PlanTest;

TEST_F(ForkTest, AChildIsRefusedAndLeavesItsParentsLeaseAndDatabaseWhole) {
  std::optional<Device> device(open());
  std::optional<Plan> plan(make_plan(kProblem, *device));
  Cache& cache = state_of(*device).cache;
  ASSERT_TRUE(cache.acquire_lease("a problem", "a GPU", 60));
  const int unloads = fake_cuda().unloads();
  EXPECT_TRUE(all_well_in_child([&] {
    std::string wrong = missing_refusal("a plan", [&] { make_plan(kProblem, *device); }) +
                        missing_refusal("a run", [&] { plan->run(tensors_of(kProblem)); }) +
                        missing_refusal("a tuning", [&] { tune(kProblem, *device); }) +
                        missing_refusal("memory", [&] { DeviceBuffer(*device, 256); }) +
                        missing_refusal("a GPU", [&] { open(); });
    if (device->facts().num_sms == 0) wrong += "facts are lost\n";
    if (plan->config().empty()) wrong += "the plan's texts are lost\n";
    plan.reset();
    *device = Device(std::move(*device));
    device.reset();
    if (fake_cuda().unloads() != unloads) wrong += "the parent's code was unloaded\n";
    // What needs no GPU opens the database anew.
    if (inspect(kProblem, typical_device("90a"), {.cache_path = database(), .compile = false})
            .config.empty())
      wrong += "no inspection\n";
    return wrong;
  }));
  EXPECT_FALSE(Cache(database()).acquire_lease("a problem", "a GPU", 60)) << "it is the parent's";
  plan->run(tensors_of(kProblem));
  const std::string winner = store_winner(device->facts(), 2);
  EXPECT_EQ(make_plan(kProblem, *device, with(Policy::kEstimate)).provenance(),
            Provenance::kEstimated)
      << "it is planned already";
  EXPECT_EQ(cache.tries(to_string(bucket(kProblem)), state_of(*device).device_class).size(), 1u);
  cache.release_lease("a problem", "a GPU");
  EXPECT_TRUE(Cache(database()).acquire_lease("a problem", "a GPU", 60));
}

// A tuning's lock may be held by a thread that the child does not have.
TEST_F(ForkTest, AChildWaitsForNoLockOfItsParentsThreads) {
  Device device = open();
  const std::lock_guard tuning(state_of(device).tuning);
  EXPECT_TRUE(all_well_in_child([&] {
    alarm(20);
    return missing_refusal("a tuning", [&] { tune(kProblem, device); }) +
           missing_refusal("a first run", [&] { make_plan(kProblem, device, first_run()); });
  }));
}

}  // namespace
}  // namespace attnforge
