// repeats_test.cpp - ten thousand runs of one problem give the same bits: a race between loads and
// products, or between blocks that take tiles from one counter, would show in some of them.
#include <gtest/gtest.h>

#include <chrono>
#include <optional>

#include "attnforge/error.h"
#include "tests/conformance/count_differing.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"

namespace attnforge {
namespace {

using namespace test;

constexpr int kRepeats = 10000;
constexpr int kConfigs = 4;        // of each family
constexpr double kPatienceS = 20;  // fwd_naive would take minutes

class Repeats : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
    context_.emplace(gpu_context());
  }
  std::optional<ScopedContext> context_;
};

TEST_P(Repeats, GiveTheSameBits) {
  // More query tiles than SMs have room for, and unequal ones.
  const std::string sizes = " batch=8 num_heads=16 seqlen=512 head_dim=64 causal";
  Problem problem = parse_problem("fwd bf16" + sizes);
  std::vector<Compiled> some = compile_some(*GetParam(), problem, kConfigs - 1, 3);
  if (some.empty()) {
    problem = parse_problem("fwd fp32" + sizes);
    some = compile_some(*GetParam(), problem, kConfigs - 1, 3);
  }
  if (some.empty()) GTEST_SKIP() << GetParam()->name << " does not serve this here";
  const HostProblem host = make_host_problem(problem, 5);
  GpuProblem first(host), repeated(host);
  // Inputs are shared, so that only the output differs.
  repeated.tensors.q = first.tensors.q;
  repeated.tensors.k = first.tensors.k;
  repeated.tensors.v = first.tensors.v;

  for (const Compiled& compiled : some) {
    SCOPED_TRACE(to_string(compiled.candidate.config));
    ASSERT_EQ(compiled.failure, "");
    const Loaded loaded(compiled);
    const Buffer workspace = loaded.make_workspace();
    const DifferenceCounter differing;
    check(driver().cuCtxSynchronize(), "wait for the uploads");
    Stream stream;
    loaded.run(first.tensors, workspace, stream.get());
    const std::int64_t bytes = problem.batch * problem.seqlen_q * problem.num_heads_q *
                               problem.head_dim_v * bytes_of(problem.dtype_o, 1);
    const auto began = std::chrono::steady_clock::now();
    int repeats = 0;
    for (; repeats < kRepeats; ++repeats) {
      loaded.run(repeated.tensors, workspace, stream.get());
      differing.count(first.tensors.o.data, repeated.tensors.o.data, bytes, stream.get());
      if (repeats % 100 != 0) continue;
      stream.synchronize();
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
      if (spent.count() > kPatienceS) break;
    }
    stream.synchronize();
    EXPECT_EQ(differing.words(), 0u) << "words in " << repeats << " repeats";
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Repeats, testing::ValuesIn(all_families_of(Op::kForward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
