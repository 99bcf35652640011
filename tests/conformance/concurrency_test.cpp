// concurrency_test.cpp - launches captured in a graph, and one loaded kernel run from several
// threads and streams.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "attnforge/error.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using namespace test;

constexpr int kThreads = 4;
constexpr int kRuns = 20;  // of each thread

class Concurrency : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
    context_.emplace(gpu_context());
    compiled_ = compile_some(*GetParam(), problem_, 0, 1);
    if (compiled_.empty())
      GTEST_SKIP() << GetParam()->name << " does not serve " << to_string(problem_) << " here";
    ASSERT_EQ(compiled_[0].failure, "");
  }

  /// The outputs of one run, directly launched.
  HostProblem outputs_of_a_run(const Loaded& loaded, const HostProblem& host) {
    GpuProblem gpu(host);
    const Buffer workspace = loaded.make_workspace();
    check(driver().cuCtxSynchronize(), "wait for the uploads");
    Stream stream;
    loaded.run(gpu.tensors, workspace, stream.get());
    stream.synchronize();
    HostProblem after = host;
    gpu.download(after);
    return after;
  }

  const Problem problem_ = parse_problem(
      "fwd bf16 batch=2 num_heads=8:2 seqlen=300:411 head_dim=128 causal lse");
  std::optional<ScopedContext> context_;
  std::vector<Compiled> compiled_;
};

TEST_P(Concurrency, GraphGivesTheSameBits) {
  const Loaded loaded(compiled_[0]);
  const HostProblem host = make_host_problem(problem_, 2);
  const HostProblem direct = outputs_of_a_run(loaded, host);
  EXPECT_FALSE(direct.storages == host.storages);

  GpuProblem gpu(host);
  const Buffer workspace = loaded.make_workspace();
  Stream stream;
  const Graph graph(stream,
                    [&](CUstream captured) { loaded.run(gpu.tensors, workspace, captured); });
  for (int replay = 0; replay < 3; ++replay) {
    gpu.upload(host);  // poisons the outputs again
    check(driver().cuCtxSynchronize(), "wait for the uploads");
    graph.launch(stream.get());
    stream.synchronize();
    HostProblem replayed = host;
    gpu.download(replayed);
    EXPECT_TRUE(replayed.storages == direct.storages) << "replay " << replay;
  }
}

TEST_P(Concurrency, ThreadsAndStreamsShareAKernel) {
  const Loaded loaded(compiled_[0]);
  std::vector<std::string> failures(kThreads);
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        ScopedContext context(gpu_context());
        const HostProblem host = make_host_problem(
            problem_, 10 + t);  // inputs of its own: mixed-up arguments are seen
        const HostProblem expected = outputs_of_a_run(loaded, host);
        GpuProblem gpu(host);
        const Buffer workspace = loaded.make_workspace();
        check(driver().cuCtxSynchronize(), "wait for the uploads");
        Stream stream;
        for (int run = 0; run < kRuns; ++run) loaded.run(gpu.tensors, workspace, stream.get());
        stream.synchronize();
        HostProblem after = host;
        gpu.download(after);
        if (after.storages != expected.storages) failures[t] = "other bits than a run on its own";
      } catch (const Error& error) {
        failures[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& failure : failures) EXPECT_EQ(failure, "");
}

INSTANTIATE_TEST_SUITE_P(Registry, Concurrency, testing::ValuesIn(all_families_of(Op::kForward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
