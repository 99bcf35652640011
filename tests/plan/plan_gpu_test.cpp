// plan_gpu_test.cpp - plans on a real GPU: right results from every source, threads and streams,
// graphs, no allocation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "count_allocations.h"
#include "generator/formats/half.h"
#include "generator/problem/bucket.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "tests/support/captured_graph.h"
#include "tests/support/environment.h"
#include "tests/support/program_beside.h"

namespace attnforge {
namespace {

using test::allocations;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

const Problem kProblem = parse_problem(
    "fwd fp16 batch=2 num_heads=8:2 seqlen=200:300 head_dim=64 causal");

/// fp16 inputs between -1 and 1, the same for the same seed.
std::vector<std::uint16_t> random_halves(std::size_t count, unsigned seed) {
  std::vector<std::uint16_t> values(count);
  std::uint32_t state = seed * 2654435761u + 1;
  for (std::uint16_t& value : values) {
    state = state * 1664525u + 1013904223u;
    const float uniform = static_cast<float>(state >> 8) / static_cast<float>(1 << 23) - 1.0f;
    value = float_to_fp16(uniform);
  }
  return values;
}

class PlanGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_plan_gpu_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
    primary_ = std::make_unique<PrimaryContext>(0);
    context_ = std::make_unique<ScopedContext>(*primary_);
    const auto elements = [](std::int64_t heads, std::int64_t rows, int dim) {
      return static_cast<std::size_t>(kProblem.batch * heads * rows * dim);
    };
    const auto upload = [](const std::vector<std::uint16_t>& values) {
      return Buffer::of(std::span(values));
    };
    q_ = upload(
        random_halves(elements(kProblem.num_heads_q, kProblem.seqlen_q, kProblem.head_dim), 1));
    k_ = upload(
        random_halves(elements(kProblem.num_heads_kv, kProblem.seqlen_kv, kProblem.head_dim), 2));
    v_ = upload(
        random_halves(elements(kProblem.num_heads_kv, kProblem.seqlen_kv, kProblem.head_dim_v), 3));
  }
  void TearDown() override {
    if (!folder_.empty()) fs::remove_all(folder_);
  }

  Device open() {
    return Device({.ordinal = 0, .cache_path = (folder_ / "cache.db").string(), .log = {}});
  }

  Buffer new_output() const {
    Buffer o(static_cast<std::size_t>(kProblem.batch * kProblem.num_heads_q * kProblem.seqlen_q *
                                      kProblem.head_dim_v) *
             2);
    o.fill8(0xff);  // NaN
    check(driver().cuCtxSynchronize(), "wait for the poison");
    return o;
  }
  Tensors tensors(const Buffer& o) const {
    Tensors t = contiguous_tensors(kProblem);
    t.q.data = q_.data();
    t.k.data = k_.data();
    t.v.data = v_.data();
    t.o.data = o.data();
    return t;
  }
  static std::vector<float> values(const Buffer& o) {
    std::vector<float> floats;
    for (const std::uint16_t each : o.to_host<std::uint16_t>())
      floats.push_back(fp16_to_float(each));
    return floats;
  }
  /// What fwd_naive computes, itself checked against the CPU by the conformance tests.
  const std::vector<float>& expected() {
    if (expected_.empty()) {
      Device device = open();
      const Buffer o = new_output();
      PlanOptions naive;
      naive.family = "fwd_naive";
      make_plan(kProblem, device, naive).run(tensors(o));
      check(driver().cuCtxSynchronize(), "wait for fwd_naive");
      expected_ = values(o);
    }
    return expected_;
  }
  void expect_right(const Buffer& o) {
    const std::vector<float> got = values(o);
    const std::vector<float>& want = expected();
    ASSERT_EQ(got.size(), want.size());
    float worst = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i])) << "element " << i;
      worst = std::max(worst, std::abs(got[i] - want[i]));
    }
    // Both round o (at most 1 in size) to fp16, and p to fp16 before the second product.
    EXPECT_LT(worst, 4e-3f);
  }

  fs::path folder_;
  std::unique_ptr<PrimaryContext> primary_;
  std::unique_ptr<ScopedContext> context_;
  Buffer q_, k_, v_;

 private:
  std::vector<float> expected_;
};

TEST_F(PlanGpuTest, EstimateIsRight) {
  Device device = open();
  const Buffer o = new_output();
  make_plan(kProblem, device).run(tensors(o));
  check(driver().cuCtxSynchronize(), "wait");
  expect_right(o);
}

TEST_F(PlanGpuTest, SecondDeviceFindsTheWinnerOfTheFirst) {
  std::string winner;
  {
    Device device = open();
    TuneOptions options;
    options.rigor = Rigor::kQuick;
    options.time_limit_s = 20;
    const TuneResult result = tune(kProblem, device, options);
    ASSERT_NE(result.winner, "");
    winner = result.winner;
    EXPECT_EQ(make_plan(kProblem, device).config(), winner);
  }
  Device device = open();
  PlanOptions cached_only;
  cached_only.policy = Policy::kCachedOnly;
  const Plan plan = make_plan(kProblem, device, cached_only);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_GT(plan.measured_us(), 0);
  const Buffer o = new_output();
  plan.run(tensors(o));
  check(driver().cuCtxSynchronize(), "wait");
  expect_right(o);
}

TEST_F(PlanGpuTest, FirstRunTunesOnceAndPlansAfterATuningUseItsWinner) {
  const test::ScopedEnvironment worker(
      std::map<std::string, std::string>{{"ATTNFORGE_WORKER", test::program_beside("attnforge")}});
  Device device = open();
  EXPECT_EQ(make_plan(kProblem, device, {.policy = Policy::kEstimate}).provenance(),
            Provenance::kEstimated);
  int reports = 0;
  PlanOptions first_run;
  first_run.policy = Policy::kFirstRun;
  first_run.time_limit_s = 6;
  first_run.on_progress = [&](const Progress&) { ++reports; };
  const Plan plan = make_plan(kProblem, device, first_run);
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  EXPECT_GT(reports, 0);
  reports = 0;
  EXPECT_EQ(make_plan(kProblem, device, first_run).config(), plan.config());
  EXPECT_EQ(reports, 0);
  Problem longer = kProblem;
  longer.seqlen_q += 1;
  EXPECT_EQ(make_plan(longer, device).provenance(), Provenance::kMeasured)
      << "the bucket was tuned";
}

TEST_F(PlanGpuTest, NoJitIsNotReadyUntilTheCodeIsStored) {
  PlanOptions no_jit;
  no_jit.allow_compile = false;
  {
    Device device = open();
    try {
      make_plan(kProblem, device, no_jit);
      FAIL() << "there is no code yet";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotReady);
      EXPECT_THAT(error.what(), HasSubstr(to_string(bucket(kProblem))));
    }
    make_plan(kProblem, device);
  }
  Device device = open();
  const Buffer o = new_output();
  make_plan(kProblem, device, no_jit).run(tensors(o));
  check(driver().cuCtxSynchronize(), "wait");
  expect_right(o);
}

TEST_F(PlanGpuTest, EightThreadsOnTwoStreamsEachAreRight) {
  constexpr int kThreads = 8, kStreams = 2, kRuns = 20;
  expected();
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  std::vector<Buffer> outputs;
  for (int i = 0; i < kThreads * kStreams; ++i) outputs.push_back(new_output());
  std::vector<std::thread> threads;
  std::atomic<int> failures = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      try {
        const ScopedContext mine(*primary_);
        std::vector<Stream> streams(kStreams);
        for (int run = 0; run < kRuns; ++run) {
          for (int i = 0; i < kStreams; ++i) {
            plan.run(tensors(outputs[static_cast<std::size_t>(thread * kStreams + i)]), nullptr,
                     streams[i].get());
          }
        }
        for (const Stream& stream : streams) stream.synchronize();
      } catch (const Error&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (const Buffer& o : outputs) expect_right(o);
}

TEST_F(PlanGpuTest, RunsOnAThreadWithoutAContext) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  const Buffer o = new_output();
  std::thread([&] { plan.run(tensors(o)); }).join();
  check(driver().cuCtxSynchronize(), "wait");
  expect_right(o);
}

TEST_F(PlanGpuTest, CapturedIntoAGraphAndReplayed) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  Buffer o = new_output();
  const Stream stream;
  const Graph graph(stream, [&](CUstream captured) { plan.run(tensors(o), nullptr, captured); });
  for (int replay = 0; replay < 3; ++replay) {
    o.fill8(0xff, stream.get());
    graph.launch(stream.get());
    stream.synchronize();
    expect_right(o);
  }
}

TEST_F(PlanGpuTest, RunAllocatesNeitherHostNorDeviceMemory) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  const Buffer o = new_output();
  const Tensors t = tensors(o);
  plan.run(t);
  check(driver().cuCtxSynchronize(), "wait");
  std::size_t free_before = 0, free_after = 0, total = 0;
  check(driver().cuMemGetInfo(&free_before, &total), "ask for free memory");
  const long before = allocations();
  for (int i = 0; i < 100; ++i) plan.run(t);
  EXPECT_EQ(allocations(), before);
  check(driver().cuCtxSynchronize(), "wait");
  check(driver().cuMemGetInfo(&free_after, &total), "ask for free memory");
  EXPECT_EQ(free_after, free_before);
}

TEST_F(PlanGpuTest, NoKeysGiveZerosAndMinusInfinity) {
  Device device = open();
  const Problem no_keys = parse_problem(
      "fwd fp16 batch=2 num_heads=8:2 seqlen=200:0 head_dim=64 lse");
  const Plan plan = make_plan(no_keys, device);
  const Buffer o = new_output();
  Buffer lse(static_cast<std::size_t>(no_keys.batch * no_keys.num_heads_q * no_keys.seqlen_q) *
             sizeof(float));
  lse.fill8(0);
  Tensors t = contiguous_tensors(no_keys);
  t.q.data = q_.data();
  t.o.data = o.data();
  t.lse.data = static_cast<float*>(lse.data());
  plan.run(t);
  check(driver().cuCtxSynchronize(), "wait");
  for (const float value : values(o)) ASSERT_EQ(value, 0.0f);
  for (const float value : lse.to_host<float>()) ASSERT_EQ(value, -INFINITY);
}

}  // namespace
}  // namespace attnforge
