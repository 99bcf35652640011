// streams_gpu_test.cpp - causal plans on a real GPU, whose blocks take tiles from counters of their
// stream (on Hopper): streams of threads, streams that come and go, graphs beside eager runs. Every
// output must have the bits of a run that had the GPU to itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <optional>
#include <thread>
#include <vector>

#include "attnforge/device_memory.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/memory.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;

// Several tiles a block, of unequal work.
const Problem kProblem = parse_problem(
    "fwd fp16 batch=4 num_heads=16 seqlen=2048 head_dim=64 causal lse");

class StreamsGpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!driver_problem().empty()) GTEST_SKIP() << driver_problem();
    device_.emplace(DeviceOptions{.ordinal = 0, .cache_path = ":memory:", .log = {}});
    scope_.emplace(state_of(*device_).context);
    plan_.emplace(make_plan(kProblem, *device_));
    if (device_->facts().arch.wgmma) {
      ASSERT_THAT(plan_->config(), HasSubstr("grid=2")) << "this is about counters";
    }
    EXPECT_EQ(plan_->workspace_bytes(), 0u);
    inputs_.emplace(upload_tensors(*device_, *plan_, random_host_tensors(kProblem, 3)));
    Output alone = new_output();
    const Stream stream;
    plan_->run(with(alone), nullptr, stream.get());
    stream.synchronize();
    expected_ = alone.o.to_host<std::byte>();
    expected_lse_ = alone.lse.to_host<std::byte>();
  }

  struct Output {
    Buffer o, lse;
  };
  static Output new_output() {
    const std::size_t rows = static_cast<std::size_t>(kProblem.batch * kProblem.num_heads_q *
                                                      kProblem.seqlen_q);
    Output output{Buffer(rows * static_cast<std::size_t>(kProblem.head_dim_v) * 2),
                  Buffer(rows * sizeof(float))};
    output.o.fill8(0xff);
    output.lse.fill8(0xff);
    check(driver().cuStreamSynchronize(nullptr), "wait for the poison");
    return output;
  }
  Tensors with(const Output& output) const {
    Tensors tensors = inputs_->tensors;
    tensors.o.data = output.o.data();
    tensors.lse.data = static_cast<float*>(output.lse.data());
    return tensors;
  }
  bool right(const Output& output) const {
    return output.o.to_host<std::byte>() == expected_ &&
           output.lse.to_host<std::byte>() == expected_lse_;
  }

  std::optional<Device> device_;
  std::optional<ContextScope> scope_;
  std::optional<Plan> plan_;
  std::optional<DeviceTensors> inputs_;
  std::vector<std::byte> expected_, expected_lse_;
};

TEST_F(StreamsGpuTest, ThreadsOnTheirDefaultStreamsGiveTheSameBits) {
  constexpr int kThreads = 8, kRuns = 50;
  std::deque<Output> outputs;
  for (int i = 0; i < kThreads; ++i) outputs.push_back(new_output());
  std::atomic<int> failures = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      try {
        const ContextScope mine(state_of(*device_).context);
        for (int run = 0; run < kRuns; ++run)
          plan_->run(with(outputs[static_cast<std::size_t>(i)]), nullptr, CU_STREAM_PER_THREAD);
        check(driver().cuStreamSynchronize(CU_STREAM_PER_THREAD), "wait for this thread's runs");
      } catch (const Error&) {
        ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  for (const Output& output : outputs) EXPECT_TRUE(right(output));
}

TEST_F(StreamsGpuTest, StreamsMadeAndDroppedAroundRunsGiveTheSameBits) {
  constexpr int kOutputs = 16, kRuns = 6000;
  std::deque<Output> outputs;
  for (int i = 0; i < kOutputs; ++i) outputs.push_back(new_output());
  const std::size_t before = state_of(*device_).counters.device_bytes();
  for (int run = 0; run < kRuns; ++run) {
    const Stream stream;  // destroyed while its run goes on; its number comes back at once
    plan_->run(with(outputs[static_cast<std::size_t>(run % kOutputs)]), nullptr, stream.get());
  }
  check(driver().cuCtxSynchronize(), "wait for the runs");
  for (const Output& output : outputs) EXPECT_TRUE(right(output));
  EXPECT_EQ(state_of(*device_).counters.device_bytes(), before)
      << "kernels count their runs, so counters are used again";
}

TEST_F(StreamsGpuTest, ThreadsThatShareAStreamGiveTheSameBits) {
  constexpr int kThreads = 4, kRuns = 50;
  const Stream shared;
  std::deque<Output> outputs;
  for (int i = 0; i < kThreads; ++i) outputs.push_back(new_output());
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int run = 0; run < kRuns; ++run)
        plan_->run(with(outputs[static_cast<std::size_t>(i)]), nullptr, shared.get());
    });
  }
  for (std::thread& thread : threads) thread.join();
  shared.synchronize();
  for (const Output& output : outputs) EXPECT_TRUE(right(output));
}

TEST_F(StreamsGpuTest, GraphsReplayedBesideEagerRunsGiveTheSameBits) {
  constexpr int kGraphs = 3, kReplays = 50;
  struct Lane {
    Stream stream;
    Output eager_output = new_output();
    Output graph_output = new_output();
    std::optional<Graph> graph;
  };
  std::deque<Lane> lanes(kGraphs);
  for (Lane& lane : lanes) {
    plan_->run(with(lane.eager_output), nullptr, lane.stream.get());
    lane.graph.emplace(lane.stream, [&](CUstream captured) {
      plan_->run(with(lane.graph_output), nullptr, captured);
      plan_->run(with(lane.graph_output), nullptr, captured);
    });
  }
  const Stream beside;
  Output beside_output = new_output();
  for (int replay = 0; replay < kReplays; ++replay) {
    for (Lane& lane : lanes) {
      lane.graph->launch(lane.stream.get());
      plan_->run(with(lane.eager_output), nullptr, lane.stream.get());
      plan_->run(with(beside_output), nullptr, beside.get());
    }
    // The graph that was captured on one stream also runs on another.
    lanes.front().graph->launch(beside.get());
  }
  check(driver().cuCtxSynchronize(), "wait for the runs");
  for (const Lane& lane : lanes) {
    EXPECT_TRUE(right(lane.eager_output));
    EXPECT_TRUE(right(lane.graph_output));
  }
  EXPECT_TRUE(right(beside_output));
}

TEST_F(StreamsGpuTest, PlansAndCountersInACaptureDoNotDisturbIt) {
  // In global mode, which forbids this thread to allocate.
  Device fresh({.ordinal = 0, .cache_path = ":memory:", .log = {}});
  make_plan(kProblem, fresh);  // loads the code; its slab of counters is there now
  Problem shorter = kProblem;
  shorter.seqlen_q = shorter.seqlen_kv = 2000;
  const Stream stream;
  Output output = new_output();
  check(driver().cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_GLOBAL), "begin");
  const Plan plan = make_plan(shorter, fresh);
  // More launches than a slab has sets: it grows here.
  for (std::size_t i = 0; i < CounterPool::kSetsPerSlab; ++i)
    state_of(fresh).counters.of(stream.get(), 1);
  Tensors tensors = with(output);
  plan.run(tensors, nullptr, stream.get());
  CUgraph graph = nullptr;
  EXPECT_EQ(driver().cuStreamEndCapture(stream.get(), &graph), CUDA_SUCCESS);
  ASSERT_NE(graph, nullptr) << "the capture is not disturbed";
  check(driver().cuGraphDestroy(graph), "destroy");
  if (device_->facts().arch.wgmma) {
    EXPECT_EQ(state_of(fresh).counters.device_bytes(),
              2 * CounterPool::kSetsPerSlab * kCounterBytes);
  }
}

/// Keys and values in reversed order of positions, full attention: the same as in their order.
TEST_F(StreamsGpuTest, NegativeStridesRunWithAlignment8) {
  Problem problem = parse_problem(
      "fwd fp16 batch=2 num_heads=4 seqlen=300 head_dim=64 alignment=8");
  const Plan plan = make_plan(problem, *device_);
  const DeviceTensors memory = upload_tensors(*device_, plan, random_host_tensors(problem, 5));
  plan.run(memory.tensors);
  HostTensors forwards, backwards;
  download_outputs(memory, problem, forwards);
  Tensors reversed = memory.tensors;
  for (Tensor* tensor : {&reversed.k, &reversed.v}) {
    tensor->data = static_cast<std::byte*>(tensor->data) + 2 * 299 * tensor->stride_row;
    tensor->stride_row = -tensor->stride_row;
  }
  plan.run(reversed);
  download_outputs(memory, problem, backwards);
  std::vector<float> a(forwards.o.size() / 2), b(a.size());
  values_to_float(DType::kFp16, forwards.o.data(), a.size(), a.data());
  values_to_float(DType::kFp16, backwards.o.data(), b.size(), b.data());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 4e-3f) << i;
}

}  // namespace
}  // namespace attnforge
