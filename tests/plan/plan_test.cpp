// plan_test.cpp - plans from memory, bucket, database and compiler on a fake driver and with a fake
// NVRTC: no GPU.
#include "attnforge/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "attnforge/inspect.h"
#include "attnforge/tune.h"
#include "count_allocations.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

/// First runs tune here, without a worker.
const std::map<std::string, std::string> kInProcess = {{"ATTNFORGE_WORKER", "in_process"}};

using namespace test;
using ::testing::HasSubstr;

TEST_F(PlanTest, EstimateCompilesOnceAndMemoryAnswersAfterwards) {
  Device device = open();
  const Plan first = make_plan(kProblem, device);
  EXPECT_EQ(first.provenance(), Provenance::kEstimated);
  EXPECT_EQ(first.measured_us(), 0);
  EXPECT_EQ(first.config(),
            to_string(untuned(registry(), bucket(kProblem), device.facts()).config));
  EXPECT_EQ(fake_cuda().loads(), 1);
  const Plan second = make_plan(kProblem, device);
  EXPECT_EQ(second.config(), first.config());
  EXPECT_EQ(fake_cuda().loads(), 1);
}

TEST_F(PlanTest, NewLengthInABucketOnlyComputesTheLaunch) {
  Device device = open();
  make_plan(kProblem, device);
  Problem longer = kProblem;
  longer.seqlen_q = longer.seqlen_kv = 310;
  ASSERT_EQ(bucket(longer), bucket(kProblem));
  const Plan plan = make_plan(longer, device, no_jit());
  EXPECT_EQ(plan.problem(), longer);
  EXPECT_EQ(fake_cuda().loads(), 1);
}

TEST_F(PlanTest, SecondDeviceFindsTheCubinInTheDatabase) {
  std::string config;
  {
    Device device = open();
    config = make_plan(kProblem, device).config();
  }
  EXPECT_EQ(fake_cuda().unloads(), 1);
  Device device = open();
  const Plan plan = make_plan(kProblem, device, no_jit());
  EXPECT_EQ(plan.config(), config);
}

TEST_F(PlanTest, WinnerOfTheDatabaseBeatsTheModel) {
  Device device = open();
  const std::string winner = store_winner(device.facts(), 3);
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_EQ(plan.measured_us(), 12.5);
}

TEST_F(PlanTest, WinnerAnswersWhateverTheLayoutAndRunsTakeTheirOwnStrides) {
  Device device = open();
  const std::string winner = store_winner(device.facts(), 3);
  Problem bhsd = kProblem;
  bhsd.layout = Layout::kBhsd;
  const Plan plan = make_plan(bhsd, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  const Tensors tensors = tensors_of(bhsd);
  plan.run(tensors);
  const FakeEncode q = fake_cuda().encode(
      0);  // its dimensions: columns, heads of a tile, rows, ...
  EXPECT_THAT(std::vector<cuuint64_t>(q.strides_bytes, q.strides_bytes + (q.rank - 1)),
              ::testing::Contains(cuuint64_t(2 * tensors.q.stride_head)));
  EXPECT_NE(tensors.q.stride_head, contiguous_tensors(kProblem).q.stride_head);
}

TEST_F(PlanTest, CachedOnlyNeedsAWinnerWithItsCode) {
  Device device = open();
  const PlanOptions cached_only = with(Policy::kCachedOnly);
  const Error nothing = error_of([&] { make_plan(kProblem, device, cached_only); });
  EXPECT_EQ(nothing.code(), ErrorCode::kNotReady);
  EXPECT_THAT(nothing.what(), HasSubstr(to_string(bucket(kProblem))));
  EXPECT_THAT(nothing.what(), HasSubstr("attnforge tune"));

  store_winner(device.facts(), 2);
  const Error no_code = error_of([&] { make_plan(kProblem, device, cached_only); });
  EXPECT_EQ(no_code.code(), ErrorCode::kNotReady);
  EXPECT_EQ(fake_cuda().loads(), 0);

  make_plan(kProblem, device);  // compiles the winner and keeps its code
  Device next = open();
  EXPECT_EQ(make_plan(kProblem, next, cached_only).provenance(), Provenance::kMeasured);
}

TEST_F(PlanTest, EstimateInMemoryDoesNotAnswerCachedOnly) {
  Device device = open();
  make_plan(kProblem, device);
  const Error error = error_of([&] { make_plan(kProblem, device, with(Policy::kCachedOnly)); });
  EXPECT_EQ(error.code(), ErrorCode::kNotReady);
  store_winner(device.facts(), 0);  // the same config, measured meanwhile by another process
  EXPECT_EQ(make_plan(kProblem, device, with(Policy::kCachedOnly)).provenance(),
            Provenance::kMeasured);
}

TEST_F(PlanTest, NoJitSaysWhichProblemIsNotReady) {
  Device device = open();
  const Error error = error_of([&] { make_plan(kProblem, device, no_jit()); });
  EXPECT_EQ(error.code(), ErrorCode::kNotReady);
  EXPECT_THAT(error.what(), HasSubstr(to_string(bucket(kProblem))));
  EXPECT_EQ(fake_cuda().loads(), 0);
}

TEST_F(PlanTest, WinnerOfAChangedTemplateIsStaleAndNoMeasurement) {
  Device device = open();
  const std::string winner = store_winner(device.facts(), 2, "changed");
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kStale);
  EXPECT_EQ(plan.measured_us(), 0);
  EXPECT_EQ(error_of([&] { make_plan(kProblem, device, with(Policy::kCachedOnly)); }).code(),
            ErrorCode::kNotReady);
}

TEST_F(PlanTest, WinnerOfAChangedTemplateWithTheCodeThatWasMeasuredIsMeasured) {
  const DeviceFacts facts = open().facts();
  const std::string winner = store_winner(facts, 2, "changed");
  store_code(facts, winner, "changed");
  const PlanOptions cached_only = with(Policy::kCachedOnly);
  {
    Device device = open();
    EXPECT_EQ(error_of([&] { make_plan(kProblem, device, cached_only); }).code(),
              ErrorCode::kNotReady)
        << "nobody has compiled today's source yet";
    const Plan plan = make_plan(kProblem, device);
    EXPECT_EQ(plan.config(), winner);
    EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
    EXPECT_EQ(plan.measured_us(), 12.5);
  }
  Device next = open();
  const Plan plan = make_plan(kProblem, next, cached_only);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_EQ(plan.measured_us(), 12.5);
}

TEST_F(PlanTest, FirstRunDoesNotTuneAgainForTheCodeThatWasMeasured) {
  Device device = open();
  const std::string winner = store_winner(device.facts(), 2, "changed");
  store_code(device.facts(), winner, "changed");
  EXPECT_EQ(make_plan(kProblem, device, first_run()).provenance(), Provenance::kMeasured);
  EXPECT_EQ(logged().find("goes on with an estimate"), std::string::npos);
}

TEST_F(PlanTest, WinnerOfAChangedTemplateWithOtherCodeStaysStale) {
  Device device = open();
  const std::string winner = store_winner(device.facts(), 2, "changed");
  store_code(device.facts(), winner, "changed", /*another=*/true);
  EXPECT_EQ(make_plan(kProblem, device).provenance(), Provenance::kStale);
  EXPECT_EQ(make_plan(kProblem, device, with_family(parse_config(winner).family)).config(), winner)
      << "the same holds for a caller who insists on its family";
}

TEST_F(PlanTest, WinnerOfAnotherGpuOfTheSameSmIsUsedAndSaidToBe) {
  Device measured_on = open(1);
  const std::string winner = store_winner(measured_on.facts(), 1);
  Device device = open(0);
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kNearDevice);
}

TEST_F(PlanTest, StoredCodeThatDoesNotLoadIsCompiledAgain) {
  {
    Device device = open();
    make_plan(kProblem, device);
  }
  Device device = open();
  fake_cuda().fail_loads(1);
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), to_string(untuned(registry(), bucket(kProblem), device.facts()).config));
  EXPECT_THAT(logged(), HasSubstr("compiled again"));
}

TEST_F(PlanTest, NextChoiceIsTakenWhenOneDoesNotLoad) {
  Device device = open();
  fake_cuda().fail_loads(1);
  const Plan plan = make_plan(kProblem, device);
  EXPECT_NE(plan.config(), to_string(untuned(registry(), bucket(kProblem), device.facts()).config));
  EXPECT_EQ(plan.provenance(), Provenance::kEstimated);
  EXPECT_THAT(logged(), HasSubstr("next choice"));
}

TEST_F(PlanTest, FirstFailureIsReportedWhenNothingLoads) {
  Device device = open();
  fake_cuda().fail_loads(1000);
  const Error error = error_of([&] { make_plan(kProblem, device); });
  EXPECT_EQ(error.code(), ErrorCode::kCuda);
  fake_cuda().fail_loads(0);
  EXPECT_EQ(make_plan(kProblem, device).provenance(), Provenance::kEstimated)
      << "a failure is not remembered";
}

TEST_F(PlanTest, ThreadsThatWantOneProblemCompileItOnce) {
  Device device = open();
  std::vector<std::thread> threads;
  std::vector<std::string> configs(8);
  for (std::string& config : configs) {
    threads.emplace_back([&] { config = make_plan(kProblem, device).config(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(fake_cuda().loads(), 1);
  for (const std::string& config : configs) EXPECT_EQ(config, configs.front());
}

TEST_F(PlanTest, FirstRunGoesOnWithAnEstimateWhereTuningIsImpossible) {
  const ScopedEnvironment worker(kInProcess);
  Device device = open();
  const Plan plan = make_plan(kProblem, device, first_run());
  EXPECT_EQ(plan.provenance(), Provenance::kEstimated);
  EXPECT_THAT(logged(), HasSubstr("goes on with an estimate"));
  const int loads = fake_cuda().loads();
  make_plan(kProblem, device, first_run());
  EXPECT_EQ(fake_cuda().loads(), loads) << "a tuning that failed is not repeated";
}

TEST_F(PlanTest, FirstRunThatWaitsInVainGoesOnAndALaterPlanTakesTheWinner) {
  const ScopedEnvironment worker(kInProcess);
  Device device = open();
  Cache other(database());
  const std::string tuned = to_string(bucket(kProblem)), gpu = device_class(device.facts());
  ASSERT_TRUE(other.acquire_lease(tuned, gpu, 60));
  PlanOptions brief = first_run();
  brief.time_limit_s = 0.2;
  EXPECT_EQ(make_plan(kProblem, device, brief).provenance(), Provenance::kEstimated);
  EXPECT_THAT(logged(), HasSubstr("somebody else still tunes"));

  LoadedKernel* const kernel = state_of(device).kernels.find({bucket(kProblem), "", ""});
  ASSERT_NE(kernel, nullptr);
  const int loads = fake_cuda().loads();
  brief.time_limit_s = 1000;
  make_plan(kProblem, device, brief);
  kernel->look_again_ns = 0;  // as if a second had passed
  make_plan(kProblem, device, brief);
  EXPECT_EQ(fake_cuda().loads(), loads)
      << "the other is still at work, and is not waited for again";

  const std::string winner = store_winner(device.facts(), 2);
  other.release_lease(tuned, gpu);
  make_plan(kProblem, device);
  EXPECT_EQ(fake_cuda().loads(), loads) << "who may not tune does not look";
  kernel->look_again_ns = 0;
  const Plan plan = make_plan(kProblem, device, brief);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_EQ(plan.config(), winner);
}

TEST_F(PlanTest, AProvisionalPlanLooksForTheWinnerOnceASecondAndNotWhileItsProcessTunes) {
  const ScopedEnvironment worker(kInProcess);
  Device device = open();
  Cache other(database());
  const std::string tuned = to_string(bucket(kProblem)), gpu = device_class(device.facts());
  ASSERT_TRUE(other.acquire_lease(tuned, gpu, 60));
  PlanOptions brief = first_run();
  brief.time_limit_s = 0.2;
  make_plan(kProblem, device, brief);
  LoadedKernel* const kernel = state_of(device).kernels.find({bucket(kProblem), "", ""});
  ASSERT_NE(kernel, nullptr);
  ASSERT_TRUE(kernel->provisional);
  brief.time_limit_s = 1000;
  const auto plan = [&] { make_plan(kProblem, device, brief); };
  const auto far_away = [] {
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1) +
           500'000'000;
  };

  kernel->look_again_ns = 0;
  plan();
  EXPECT_GT(kernel->look_again_ns, far_away()) << "the other has it: the next look is in a second";
  store_winner(device.facts(), 2);
  other.release_lease(tuned, gpu);
  plan();
  EXPECT_FALSE(kernel->superseded) << "the second is not over";

  kernel->look_again_ns = 0;
  {
    const std::lock_guard tuning(state_of(device).tuning);
    std::thread(plan).join();
    EXPECT_FALSE(kernel->superseded) << "a thread of this process tunes, under a lease of its own";
    EXPECT_GT(kernel->look_again_ns, far_away());
  }
  kernel->look_again_ns = 0;
  plan();
  EXPECT_TRUE(kernel->superseded);
  EXPECT_TRUE(other.acquire_lease(tuned, gpu, 60)) << "who only looked has given the lease back";
}

TEST_F(PlanTest, FirstRunWaitsNoLongerThanItsLimitForATuningOfAnotherThread) {
  const ScopedEnvironment worker(kInProcess);
  Device device = open();
  const std::lock_guard other_problem(state_of(device).tuning);
  PlanOptions brief = first_run();
  brief.time_limit_s = 0.2;
  Provenance provenance = Provenance::kForced;
  std::thread([&] { provenance = make_plan(kProblem, device, brief).provenance(); }).join();
  EXPECT_EQ(provenance, Provenance::kEstimated);
  EXPECT_THAT(logged(), HasSubstr("somebody else still tunes"));
}

TEST_F(PlanTest, PlanInMemoryIsFoundWithoutAnAllocation) {
  Device device = open();
  make_plan(kProblem, device);
  const PlanOptions options;
  const long before = allocations();
  for (int i = 0; i < 100; ++i) make_plan(kProblem, device, options);
  EXPECT_EQ(allocations(), before);
}

TEST_F(PlanTest, NewLengthInABucketAllocatesLittle) {
  Device device = open();
  Problem longer = kProblem;
  longer.seqlen_kv = 1030;
  const Problem of_all = bucket(longer);
  make_plan(longer, device);
  constexpr int kPlans = 100, kGrowth = 20;  // of the map
  const long before = allocations();
  for (int i = 0; i < kPlans; ++i) {
    longer.seqlen_kv += 1;
    make_plan(longer, device);
  }
  // The plan, two lists that it keeps, a place in the map; of the launch three lists and a name,
  // and the family's part of that.
  EXPECT_LE(allocations() - before, kPlans * 9 + kGrowth);
  ASSERT_EQ(bucket(longer), of_all);
}

TEST_F(PlanTest, DeviceUsesTheCallersContextOfItsGpu) {
  CUcontext popped = nullptr;
  driver().cuCtxPushCurrent(fake_cuda().other_context());
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  driver().cuCtxPopCurrent(&popped);
  plan.run(tensors_of(kProblem));
  EXPECT_EQ(fake_cuda().last_context(), fake_cuda().other_context());
}

TEST_F(PlanTest, BadProblemsAreRefusedBeforeAnythingHappens) {
  Device device = open();
  Problem bad = kProblem;
  bad.head_dim = 60;
  EXPECT_EQ(error_of([&] { make_plan(bad, device); }).code(), ErrorCode::kInvalidProblem);
  EXPECT_EQ(fake_cuda().loads(), 0);
}

TEST_F(PlanTest, DatabaseThatCannotBeOpenedCostsOnlyMemory) {
  Device device({.ordinal = 0, .cache_path = "/proc/nowhere/cache.db", .log = {}});
  EXPECT_EQ(make_plan(kProblem, device).provenance(), Provenance::kEstimated);
}

TEST_F(PlanTest, OrdinalsThatDoNotExistAreRefused) {
  const Error error = error_of(
      [] { Device device({.ordinal = 7, .cache_path = ":memory:", .log = {}}); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
}

TEST_F(PlanTest, NumbersOfOptionsThatMeanNothingAreRefused) {
  Device device = open();
  TuneOptions tuning;
  tuning.compile_threads = -5;
  Error error = error_of([&] { tune(kProblem, device, tuning); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_STREQ(error.what(), "compile_threads=-5 must be from 0 to 1024");
  tuning = {};
  tuning.time_limit_s = std::nan("");
  EXPECT_EQ(error_of([&] { tune(kProblem, device, tuning); }).code(), ErrorCode::kInvalidArgument);
  PlanOptions planning;
  planning.time_limit_s = -1;
  EXPECT_EQ(error_of([&] { make_plan(kProblem, device, planning); }).code(),
            ErrorCode::kInvalidArgument);
  InspectOptions inspecting;
  inspecting.max_candidates = -1;
  EXPECT_EQ(error_of([&] { inspect(kProblem, device.facts(), inspecting); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST_F(PlanTest, BatchInvariantProblemsHaveOneKernelWhateverTheirBatch) {
  Device device = open();
  const std::string
      text = "fwd bf16 num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used page_size=16 ";
  const auto planned = [&](const std::string& more) {
    return make_plan(parse_problem(text + more), device);
  };
  const Plan one = planned("batch_invariant batch=1");
  const int loads = fake_cuda().loads();
  for (const char* batch : {"batch=2", "batch=64", "batch=500"}) {
    const Plan plan = planned(std::string("batch_invariant ") + batch);
    EXPECT_EQ(plan.config(), one.config());
    EXPECT_GE(plan.workspace_bytes(), one.workspace_bytes());
  }
  EXPECT_EQ(fake_cuda().loads(), loads);
  EXPECT_NE(planned("batch=1").config(), planned("batch=128").config())
      << "without the word a batch that fills the GPU splits no keys";
  const Error error = error_of([&] {
    make_plan(parse_problem("fwd bf16 num_heads=32:8 seqlen=16:8192 head_dim=128 lengths=used "
                            "batch_invariant batch=1048576"),
              device);
  });
  EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(std::string(error.what()), HasSubstr("more than the GPU's memory"));
}

}  // namespace
}  // namespace attnforge
