// backward_repeats_test.cpp - ten thousand runs of a problem that says deterministic give the same
// bits, whatever order blocks run in.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <string>

#include "attnforge/error.h"
#include "tests/conformance/count_differing.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"

namespace attnforge {
namespace {

using namespace test;

constexpr int kBackwardRepeats = 10000;
constexpr int kBackwardConfigs = 4;        // of each family
constexpr double kBackwardPatienceS = 20;  // bwd_naive would take minutes

class BackwardRepeats : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
    context_.emplace(gpu_context());
  }

  void check(const Problem& problem) {
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, kBackwardConfigs - 1, 3);
    if (some.empty()) GTEST_SKIP() << GetParam()->name << " does not serve this here";
    const HostProblem host = make_host_problem(problem, 5);
    GpuProblem first(host), repeated(host);
    // Inputs are shared, so that only the gradients differ.
    const Gradients own = repeated.tensors.gradients;
    repeated.tensors = first.tensors;
    repeated.tensors.gradients.dq = own.dq;
    repeated.tensors.gradients.dk = own.dk;
    repeated.tensors.gradients.dv = own.dv;
    const std::int64_t size = bytes_of(problem.dtype_q, 1);
    const std::int64_t bytes_q = problem.batch * problem.seqlen_q * problem.num_heads_q *
                                 problem.head_dim * size;
    const std::int64_t bytes_kv = problem.batch * problem.seqlen_kv * problem.num_heads_kv *
                                  problem.head_dim * size;
    for (const Compiled& compiled : some) {
      SCOPED_TRACE(to_string(compiled.candidate.config));
      ASSERT_EQ(compiled.failure, "");
      const Loaded loaded(compiled);
      const Buffer workspace = loaded.make_workspace();
      const DifferenceCounter differing;
      attnforge::check(driver().cuCtxSynchronize(), "wait for the uploads");
      Stream stream;
      loaded.run(first.tensors, workspace, stream.get());
      const auto began = std::chrono::steady_clock::now();
      int repeats = 0;
      for (; repeats < kBackwardRepeats; ++repeats) {
        loaded.run(repeated.tensors, workspace, stream.get());
        const Gradients &a = first.tensors.gradients, &b = repeated.tensors.gradients;
        differing.count(a.dq.data, b.dq.data, bytes_q, stream.get());
        differing.count(a.dk.data, b.dk.data, bytes_kv, stream.get());
        differing.count(a.dv.data, b.dv.data, bytes_kv, stream.get());
        if (repeats % 100 != 0) continue;
        stream.synchronize();
        const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
        if (spent.count() > kBackwardPatienceS) break;
      }
      stream.synchronize();
      EXPECT_EQ(differing.words(), 0u) << "words in " << repeats << " repeats";
    }
  }

  std::optional<ScopedContext> context_;
};

// More tiles than SMs have room for, and unequal ones.

TEST_P(BackwardRepeats, GiveTheSameBits) {
  check(parse_problem("bwd bf16 batch=8 num_heads=16 seqlen=512 head_dim=64 causal deterministic"));
}

TEST_P(BackwardRepeats, GiveTheSameBitsWithGroupsAndLengths) {
  check(
      parse_problem("bwd bf16 batch=5 num_heads=16:4 seqlen=600 head_dim=128 lengths=packed causal "
                    "deterministic"));
}

INSTANTIATE_TEST_SUITE_P(Registry, BackwardRepeats,
                         testing::ValuesIn(all_families_of(Op::kBackward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
