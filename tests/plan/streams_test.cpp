// streams_test.cpp - plans whose kernels count their tiles, on streams of every kind, and plans
// that end; on a fake driver, with real NVRTC.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "count_allocations.h"
#include "generator/problem/bucket.h"
#include "plan/device_state.h"
#include "runtime/compile/compiler.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "templates/base_params.h"
#include "templates/fwd_wgmma_sm90a/config.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using test::tensors_of;
using ::testing::HasSubstr;

const Problem kCausal = parse_problem(
    "fwd fp16 batch=2 num_heads=32 seqlen=4096 head_dim=64 causal");
const Problem kSmall = parse_problem("fwd fp16 num_heads=4:2 seqlen=4000 head_dim=64");

/// One Device for all tests: a kernel for Hopper takes seconds to compile.
class StreamsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    fake_cuda().reset();
    if (driver_problem().empty() && nvrtc_facts().available)
      device_ = new Device({.ordinal = 0, .cache_path = ":memory:", .log = {}});
  }
  static void TearDownTestSuite() {
    delete device_;
    device_ = nullptr;
    EXPECT_EQ(fake_cuda().device_bytes(), 0u) << "counters end with their Device";
  }
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
    if (device_ == nullptr) GTEST_SKIP() << nvrtc_facts().problem;
    fake_cuda().watch(offsetof(FwdWgmmaSm90aParams, counters));
    driver().cuCtxPushCurrent(state_of(*device_).context);
  }
  void TearDown() override {
    CUcontext popped = nullptr;
    if (device_ != nullptr) driver().cuCtxPopCurrent(&popped);
  }

  /// Runs the plan, ends its kernel as that would, and returns the counters that it had.
  static void* counters_of_a_run(const Plan& plan, CUstream stream) {
    plan.run(tensors_of(plan.problem()), nullptr, stream);
    void* const counters = fake_cuda().last_argument();
    static_cast<std::uint32_t*>(counters)[kRunsCounter] += 1;
    return counters;
  }

  static inline Device* device_ = nullptr;
};

TEST_F(StreamsTest, CausalPlansOnHopperNeedNoWorkspace) {
  const Plan plan = make_plan(kCausal, *device_);
  ASSERT_THAT(plan.config(), HasSubstr("fwd_wgmma_sm90a"));
  ASSERT_THAT(plan.config(), HasSubstr("grid=" + std::to_string(kGridDynamic)));
  EXPECT_EQ(plan.workspace_bytes(), 0u);
  const Stream stream;
  void* const counters = counters_of_a_run(plan, stream.get());
  ASSERT_NE(counters, nullptr);
  EXPECT_EQ(static_cast<std::uint32_t*>(counters)[0], 0u);
  EXPECT_EQ(counters_of_a_run(plan, stream.get()), counters);
  EXPECT_EQ(fake_cuda().device_bytes(), state_of(*device_).counters.device_bytes());
}

TEST_F(StreamsTest, PlansOfOneStreamTakeTurnsWithItsCountersAndOtherStreamsHaveTheirOwn) {
  const Plan plan = make_plan(kCausal, *device_);
  Problem shorter = kCausal;
  shorter.seqlen_q = shorter.seqlen_kv = 4000;
  const Plan other = make_plan(shorter, *device_);
  const Stream first, second;
  EXPECT_EQ(counters_of_a_run(plan, first.get()), counters_of_a_run(other, first.get()));
  EXPECT_NE(counters_of_a_run(plan, first.get()), counters_of_a_run(plan, second.get()));

  std::set<void*> of_threads;
  for (int i = 0; i < 4; ++i) {
    std::thread([&] { of_threads.insert(counters_of_a_run(plan, CU_STREAM_PER_THREAD)); }).join();
  }
  EXPECT_EQ(of_threads.size(), 4u) << "handle 2 is another stream in each thread";
}

TEST_F(StreamsTest, StreamsMadeAndDroppedAroundRunsNeverShareCountersWithWorkUnderWay) {
  const Plan plan = make_plan(kCausal, *device_);
  const Tensors tensors = tensors_of(kCausal);
  std::set<void*> under_way;
  for (int i = 0; i < 100; ++i) {
    const Stream stream;
    plan.run(tensors, nullptr, stream.get());
    EXPECT_TRUE(under_way.insert(fake_cuda().last_argument()).second);
  }
  const std::size_t before = fake_cuda().device_bytes();
  for (int i = 0; i < 10000; ++i) {
    const Stream stream;
    EXPECT_EQ(under_way.count(counters_of_a_run(plan, stream.get())), 0u);
  }
  EXPECT_EQ(fake_cuda().device_bytes(), before);
}

TEST_F(StreamsTest, CapturedRunsHaveCountersOfTheirOwn) {
  const Plan plan = make_plan(kCausal, *device_);
  const Stream stream;
  void* const eager = counters_of_a_run(plan, stream.get());
  driver().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL);
  void* const first = counters_of_a_run(plan, stream.get());
  void* const second = counters_of_a_run(plan, stream.get());
  CUgraph graph = nullptr;
  driver().cuStreamEndCapture(stream.get(), &graph);
  EXPECT_EQ((std::set<void*>{eager, first, second}.size()), 3u);
  EXPECT_EQ(counters_of_a_run(plan, stream.get()), eager);
}

TEST_F(StreamsTest, RunThatCountsAllocatesNothing) {
  const Plan plan = make_plan(kCausal, *device_);
  const Tensors tensors = tensors_of(kCausal);
  const Stream stream;
  plan.run(tensors, nullptr, stream.get());
  const long before = test::allocations();
  for (int i = 0; i < 100; ++i) plan.run(tensors, nullptr, stream.get());
  EXPECT_EQ(test::allocations(), before);
}

TEST_F(StreamsTest, StridesThatTmaCannotTakeWantAPlanWithAlignment8) {
  Problem problem = kCausal;
  Tensors backwards = tensors_of(problem);
  backwards.k.stride_row = -backwards.k.stride_row;
  Tensors huge = tensors_of(problem);
  huge.v.stride_batch = std::int64_t{1} << 62;  // times 2 bytes: 2^63; times 4 it would be 0
  const Plan with_tma = make_plan(problem, *device_);
  for (const Tensors& tensors : {backwards, huge}) {
    try {
      with_tma.run(tensors);
      FAIL() << "TMA has no such strides";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("alignment=8"));
    }
  }
  problem.alignment_bytes = 8;
  const Plan without = make_plan(problem, *device_);
  EXPECT_THAT(without.config(), HasSubstr("fwd_mma_sm80"));
  EXPECT_NO_THROW(without.run(backwards));
}

// ---- Plans that end ----

TEST_F(StreamsTest, ThirtyThousandLengthsAreNotKept) {
  const DeviceState& state = state_of(*device_);
  Problem problem = kSmall;
  const Plan kept = make_plan(problem, *device_);
  int planned = 0;
  long at_the_limit = 0;
  for (std::int64_t q = 3590; q < 3790; ++q) {
    for (std::int64_t kv = 3590; kv < 3740; ++kv) {
      problem.seqlen_q = q;
      problem.seqlen_kv = kv;
      ASSERT_EQ(make_plan(problem, *device_).problem(), problem);
      if (++planned == 5000) at_the_limit = test::live_bytes();
    }
  }
  EXPECT_EQ(planned, 30000);
  EXPECT_EQ(state.plans.size(), DeviceState::kPlansKept);
  EXPECT_LT(test::live_bytes() - at_the_limit, 100 << 10) << "of 25000 plans more";
  EXPECT_EQ(kept.problem(), kSmall);
  const int launches = fake_cuda().launches();
  kept.run(tensors_of(kSmall));
  EXPECT_EQ(fake_cuda().launches(), launches + 1) << "who holds a plan can run it";
  EXPECT_EQ(make_plan(kSmall, *device_).config(), kept.config());
}

/// Lengths of one bucket, each once, that differ from those of `problem`.
class OtherLengths {
 public:
  explicit OtherLengths(const Problem& problem) : next_(problem) {
    next_.seqlen_q = 3800;
    next_.seqlen_kv = 3600;
  }
  const Problem& operator()() {
    if (++next_.seqlen_kv > 4000) next_.seqlen_kv = 3601, ++next_.seqlen_q;
    return next_;
  }

 private:
  Problem next_;
};

TEST_F(StreamsTest, HundredThousandHeldPlansTakeAtMost64MiBAndAreFreedWhenTheyAreDestroyed) {
  constexpr std::size_t kPromised = 100000;
  constexpr long kMostBytes = (64 << 20) / kPromised;
  const struct {
    std::string problem, family;
    std::size_t plans;
  } cases[] = {
      {"fwd fp16 num_heads=4:2 seqlen=4000 head_dim=64", "fwd_wgmma_sm90a", kPromised},
      {"fwd fp16 batch=3 num_heads=8 seqlen=4000 head_dim=64 causal lengths=packed",
       "fwd_wgmma_sm90a", 10000},
      {"fwd fp16 num_heads=4:2 seqlen=4000 head_dim=64 alignment=8", "fwd_mma_sm80", 10000}};
  for (const auto& each : cases) {
    SCOPED_TRACE(each.problem);
    const Problem problem = parse_problem(each.problem);
    const Plan first = make_plan(problem, *device_);
    ASSERT_THAT(first.config(), HasSubstr(each.family));
    OtherLengths other_length(problem);
    for (std::size_t i = 0; i < DeviceState::kPlansKept; ++i) make_plan(other_length(), *device_);
    std::vector<Plan> plans;
    plans.reserve(each.plans);
    const long before = test::live_bytes();
    for (std::size_t i = 0; i < each.plans; ++i)
      plans.push_back(make_plan(other_length(), *device_));
    ASSERT_EQ(bucket(plans.back().problem()), bucket(problem));
    // As many as the Device kept before are gone: it keeps some of these instead.
    const auto more = static_cast<long>(each.plans - DeviceState::kPlansKept);
    const long bytes_a_plan = (test::live_bytes() - before) / more;
    RecordProperty("bytes_a_plan_of_" + each.family, static_cast<int>(bytes_a_plan));
    EXPECT_GT(bytes_a_plan, 128) << "else this test sees nothing";
    EXPECT_LE(bytes_a_plan + static_cast<long>(sizeof(Plan)), kMostBytes);
    plans.clear();
    EXPECT_LT(test::live_bytes() - before, 64 << 10) << "but for those that are kept anyway";
  }
}

TEST_F(StreamsTest, PlansThatShareAKernelRunWithTheirOwnLengths) {
  Problem problem = kCausal;
  problem.batch = 4;
  const Plan first = make_plan(problem, *device_);
  problem.batch = 3;
  problem.seqlen_q = 3700;
  problem.seqlen_kv = 3999;
  const Plan second = make_plan(problem, *device_);
  ASSERT_EQ(second.config(), first.config());
  for (const Plan* const plan : {&second, &first, &second}) {
    fake_cuda().reset();
    fake_cuda().watch(offsetof(FwdParams, seqlen_q));
    plan->run(tensors_of(plan->problem()));
    void* const lengths = fake_cuda().last_argument();
    std::int32_t q_and_kv[2];
    std::memcpy(q_and_kv, &lengths, sizeof(q_and_kv));
    EXPECT_EQ(q_and_kv[0], plan->problem().seqlen_q);
    EXPECT_EQ(q_and_kv[1], plan->problem().seqlen_kv);
    const test::FakeEncode q = fake_cuda().encode(0), k = fake_cuda().encode(1);
    EXPECT_EQ(q.extents[2], static_cast<cuuint64_t>(plan->problem().seqlen_q));
    EXPECT_EQ(k.extents[1], static_cast<cuuint64_t>(plan->problem().seqlen_kv));
    EXPECT_EQ(k.extents[3], static_cast<cuuint64_t>(plan->problem().batch));
  }
}

TEST_F(StreamsTest, PlanMayBeDroppedAfterItsDevice) {
  std::vector<Plan> plans;
  {
    Device device({.ordinal = 0, .cache_path = ":memory:", .log = {}});
    PlanOptions options;
    options.family = "fwd_naive";
    plans.push_back(make_plan(kSmall, device, options));
    plans.push_back(plans.front());
  }
  plans.pop_back();
  plans.clear();
}

}  // namespace
}  // namespace attnforge
