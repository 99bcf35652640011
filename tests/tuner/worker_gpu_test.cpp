// worker_gpu_test.cpp - what candidates do to workers on a real GPU, and what becomes of a search:
// each fault is a failed try, and the next candidate is as if nothing had been.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

#include "runtime/compile/compiler.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "tests/support/program_beside.h"
#include "tests/tuner/faulty_family.h"
#include "tuner/evaluator.h"
#include "tuner/trials/worker_trials.h"
#include "tuner/worker/compile_workers.h"

namespace attnforge {
namespace {

using testing::FaultKind;
using testing::faulty_candidate;

const WorkerProgram kProgram = {test::program_beside("faulty_worker"), "faulty"};

class WorkerGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << "no GPU: " << driver_problem();
    if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
    device = device_facts(0);
    evaluator = make_evaluator(problem, device, cache,
                               make_worker_trials(problem, device, kProgram, {.hang_least_s = 1},
                                                  std::chrono::steady_clock::time_point::max()),
                               std::make_unique<CompileWorkers>(kProgram), 2);
  }

  Measurement try_out(const Candidate& candidate) {
    Measurement result;
    evaluator->prepare(
        std::span(&candidate, 1), [] { return true; },
        [&](std::size_t, const Measurement& prepared) { result = prepared; });
    return result.status == Status::kOk ? evaluator->prove(candidate.config) : result;
  }
  Candidate naive() const { return candidates(*find_family("fwd_naive"), problem, device).front(); }

  template <FaultKind kKind>
  void expect_found(Status status, const char* detail) {
    const Candidate good = naive();
    ASSERT_EQ(try_out(good).status, Status::kOk);
    const auto start = std::chrono::steady_clock::now();
    const Measurement result = try_out(faulty_candidate<kKind>(problem, device));
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    EXPECT_EQ(result.status, status) << to_string(result.status) << ": " << result.detail;
    EXPECT_NE(result.detail.find(detail), std::string::npos) << result.detail;
    ASSERT_EQ(evaluator->lost(), nullptr) << evaluator->lost()->advice;
    EXPECT_LT(took.count(), 5);
    // What was loaded before is loaded again.
    for (const double time_us :
         evaluator->sample_us(std::vector<Config>(3, good.config), Sizes::kBucket))
      EXPECT_GT(time_us, 1);
    EXPECT_EQ(evaluator->prove(good.config).status, Status::kOk);
    CUcontext context = nullptr;
    ASSERT_EQ(driver().cuCtxGetCurrent(&context), CUDA_SUCCESS);
    EXPECT_EQ(context, nullptr) << "the supervisor has none";
  }

  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse");
  DeviceFacts device;
  Cache cache{":memory:"};
  std::unique_ptr<Evaluator> evaluator;
};

TEST_F(WorkerGpuTest, RightKernelsPass) {
  const Measurement result = try_out(naive());
  EXPECT_EQ(result.status, Status::kOk) << result.detail;
  EXPECT_GT(result.time_us, 1);
  EXPECT_GT(evaluator->sample_us(std::vector<Config>(1, naive().config), Sizes::kBucket).front(),
            1);
}
TEST_F(WorkerGpuTest, IllegalAddress) {
  expect_found<FaultKind::kIllegal>(Status::kLaunchError, "ILLEGAL");
}
TEST_F(WorkerGpuTest, WriteFarOutOfBounds) {
  expect_found<FaultKind::kFarWrite>(Status::kLaunchError, "");
}
TEST_F(WorkerGpuTest, WriteJustOutOfBounds) {
  expect_found<FaultKind::kPastEnd>(Status::kWrongResult, "before or past o");
}
TEST_F(WorkerGpuTest, EndlessLoop) {
  expect_found<FaultKind::kEndless>(Status::kTimedOut, "no end after");
}
TEST_F(WorkerGpuTest, BarrierThatNeverCompletes) {
  expect_found<FaultKind::kBarrier>(Status::kTimedOut, "no end after");
}
TEST_F(WorkerGpuTest, WrongResult) {
  expect_found<FaultKind::kWrong>(Status::kWrongResult, "wrong in query rows");
}
TEST_F(WorkerGpuTest, OtherBits) {
  expect_found<FaultKind::kOtherBits>(Status::kWrongResult, "has other bits");
}
TEST_F(WorkerGpuTest, CompileError) {
  expect_found<FaultKind::kSyntax>(Status::kCompileError, "error");
}
TEST_F(WorkerGpuTest, TooMuchSharedMemory) {
  expect_found<FaultKind::kSharedMemory>(Status::kLaunchError, "");
}

/// Each costs a worker.
TEST_F(WorkerGpuTest, ManyFaults) {
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    EXPECT_EQ(try_out(faulty_candidate<FaultKind::kIllegal>(problem, device)).status,
              Status::kLaunchError);
    EXPECT_EQ(try_out(naive()).status, Status::kOk);
    ASSERT_EQ(evaluator->lost(), nullptr) << evaluator->lost()->advice;
  }
}

}  // namespace
}  // namespace attnforge
