// loaded_launch_test.cpp - steps with their kernels, on the fake driver: what is loaded, what is
// launched with what, and what is no launch.
#include "runtime/loaded_launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "runtime/device.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::HasSubstr;

class LoadedLaunchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
  }
  /// One whose argument is a pointer into the workspace.
  static LaunchStep step(const std::string& kernel, std::size_t scratch_begin = 0) {
    LaunchStep step;
    step.kernel = kernel;
    step.params.resize(8);
    std::memcpy(step.params.data(), &scratch_begin, 8);
    step.args = {{0, ScratchArgument{}}};
    return step;
  }
  LoadedKernels load(const Launch& launch) const {
    return LoadedKernels(std::as_bytes(std::span("\177ELF of a fake kernel")), {}, launch);
  }

  PrimaryContext primary{0};
  ScopedContext scope{primary};
};

TEST_F(LoadedLaunchTest, StepsRunInOrderWithTheirOwnArguments) {
  Launch launch{.steps = {step("first", 16), step("second", 32)}, .workspace_bytes = 64};
  launch.steps[1].grid.x = 7;
  launch.steps[1].args.push_back({0, CountersArgument{}});  // written last
  const LoadedKernels kernels = load(launch);
  const LoadedLaunch loaded(launch, kernels);
  EXPECT_EQ(loaded.workspace_bytes(), 64u);
  EXPECT_EQ(loaded.counted_steps(), 1);
  std::byte workspace[64], counters[32];
  loaded.run({}, {.workspace = workspace, .counters = counters}, nullptr);
  EXPECT_EQ(fake_cuda().launches(), 2);
  EXPECT_EQ(fake_cuda().last_grid_x(), 7u);
  EXPECT_EQ(fake_cuda().last_argument(), counters);

  launch.steps.pop_back();
  LoadedLaunch(launch, kernels).run({}, {.workspace = workspace}, nullptr);
  EXPECT_EQ(fake_cuda().launches(), 3);
  EXPECT_EQ(fake_cuda().last_argument(), workspace + 16);
}

TEST_F(LoadedLaunchTest, LaunchOfOtherSizesSharesAllButItsGridAndTheWordsThatDiffer) {
  Launch launch{.steps = {step("first", 16), step("second", 32)}};
  for (LaunchStep& each : launch.steps) each.params.resize(64);
  const LoadedKernels kernels = load(launch);
  launch.steps[1] = step("second", 48);
  launch.steps[1].params.resize(64, std::byte{0});
  launch.steps[1].params[60] = std::byte{7};  // the last word
  launch.steps[1].grid.x = 5;
  launch.steps[1].from_workspace = {{TensorMapSpec::Operand::kQ, 256, 1, 1, 1}};
  const LoadedLaunch loaded(launch, kernels);
  EXPECT_EQ(loaded.steps()[0].loaded, &kernels.steps()[0]);
  EXPECT_EQ(loaded.steps()[0].words_end, 0u);
  EXPECT_EQ(loaded.steps()[1].loaded, &kernels.steps()[1]);
  EXPECT_EQ(loaded.steps()[1].words_end, 2u);
  EXPECT_EQ(*loaded.steps()[1].from_workspace, launch.steps[1].from_workspace);
  std::byte workspace[64];
  loaded.run({}, {.workspace = workspace}, nullptr);
  EXPECT_EQ(fake_cuda().last_argument(), workspace + 48);
  EXPECT_EQ(fake_cuda().last_grid_x(), 5u);
  fake_cuda().watch(56);
  loaded.run({}, {.workspace = workspace}, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(fake_cuda().last_argument()), std::uintptr_t{7} << 32);
}

TEST_F(LoadedLaunchTest, StepThatIsNotLikeTheLoadedOneIsItsOwn) {
  const Launch launch{.steps = {step("first", 16)}};
  const LoadedKernels kernels = load(launch);
  std::byte workspace[64], counters[32];
  const auto expect_own = [&](auto&& change) {
    Launch other{.steps = {step("first", 16)}};
    change(other.steps[0]);
    const LoadedLaunch loaded(other, kernels);
    EXPECT_NE(loaded.steps()[0].loaded, &kernels.steps()[0]);
    loaded.run({}, {.workspace = workspace, .counters = counters}, nullptr);
  };
  expect_own([](LaunchStep& step) { step.block.y = 2; });
  expect_own([](LaunchStep& step) { step.smem_bytes = 1024; });
  expect_own([](LaunchStep& step) { step.params.resize(16); });
  EXPECT_EQ(fake_cuda().last_argument(), workspace + 16);
  expect_own([](LaunchStep& step) { step.args = {{0, CountersArgument{}}}; });
  EXPECT_EQ(fake_cuda().last_argument(), counters);
}

TEST_F(LoadedLaunchTest, LaunchMayAskForMoreSharedMemoryThanTheOneThatKernelsWereLoadedFor) {
  const auto launch = [](int smem_bytes) {
    Launch launch{.steps = {step("first")}};
    launch.steps[0].smem_bytes = smem_bytes;
    return launch;
  };
  constexpr int kMostBytes = (227 << 10) - 64;  // of the fake GPU
  std::byte workspace[8];
  for (const int loaded_for : {0, 1024, kMostBytes}) {
    const LoadedKernels kernels = load(launch(loaded_for));
    for (const int smem_bytes : {0, 2048, 112640, kMostBytes})
      LoadedLaunch(launch(smem_bytes), kernels).run({}, {.workspace = workspace}, nullptr);
    EXPECT_THROW(
        LoadedLaunch(launch(kMostBytes + 1), kernels).run({}, {.workspace = workspace}, nullptr),
        Error);
  }
  EXPECT_THROW(load(launch(kMostBytes + 1)), Error);
}

TEST_F(LoadedLaunchTest, KernelOfSeveralStepsIsLoadedOnceAndFreedAtTheEnd) {
  const Launch launch{.steps = {step("shared"), step("other"), step("shared")}};
  {
    LoadedKernels kernels = load(launch);
    EXPECT_EQ(fake_cuda().loads(), 2);
    const LoadedLaunch loaded(launch, kernels);
    const LoadedKernels moved = std::move(kernels);
    EXPECT_EQ(&moved.at("shared"), loaded.steps()[2].loaded->kernel)
        << "moving leaves kernels in place";
    std::byte workspace[8];
    loaded.run({}, {.workspace = workspace}, nullptr);
    EXPECT_EQ(fake_cuda().launches(), 3);
    EXPECT_EQ(fake_cuda().unloads(), 0);
  }
  EXPECT_EQ(fake_cuda().unloads(), 2);
}

TEST_F(LoadedLaunchTest, NoStepsAreNothingToDo) {
  const LoadedLaunch nothing({}, load({}));
  nothing.run({}, {}, nullptr);
  EXPECT_TRUE(nothing.steps().empty());
  EXPECT_EQ(fake_cuda().loads(), 0);
  EXPECT_EQ(fake_cuda().launches(), 0);
}

TEST_F(LoadedLaunchTest, StepMayOverlapTheOneAheadOfIt) {
  Launch launch{.steps = {step("first"), step("second"), step("third")}};
  launch.steps[2].overlaps_previous = true;
  const LoadedKernels kernels = load(launch);
  std::byte workspace[8];
  LoadedLaunch(launch, kernels).run({}, {.workspace = workspace}, nullptr);
  EXPECT_EQ(fake_cuda().launches(), 3);
  EXPECT_EQ(fake_cuda().overlapping_launches(), 1);
}

TEST_F(LoadedLaunchTest, FirstStepNeverOverlapsWhatTheStreamHolds) {
  // The run before may still read scratch that this step writes.
  Launch launch{.steps = {step("first"), step("second")}};
  launch.steps[0].overlaps_previous = true;
  const LoadedKernels kernels = load(launch);
  try {
    const LoadedLaunch loaded(launch, kernels);
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr("first step"));
  }
}

TEST_F(LoadedLaunchTest, ArgumentsBeyondTheStackBufferAndUnknownKernelsAreMistakes) {
  Launch launch{.steps = {step("first")}};
  const LoadedKernels kernels = load(launch);
  launch.steps[0].params.resize(kMaxParamsBytes + 8);
  EXPECT_THROW(LoadedLaunch(launch, kernels), Error);
  launch.steps[0].params.resize(kMaxParamsBytes);
  EXPECT_NO_THROW(LoadedLaunch(launch, kernels));
  launch.steps[0].kernel = "second";
  EXPECT_THROW(LoadedLaunch(launch, kernels), Error);
}

}  // namespace
}  // namespace attnforge
