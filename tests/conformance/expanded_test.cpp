// expanded_test.cpp - keys and values that one array gives to every head and sequence: strides of
// zero, as frameworks make them by "expanding" without a copy.
#include <gtest/gtest.h>

#include <string>

#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"

namespace attnforge {
namespace {

using namespace test;

class Expanded : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
  }
};

/// The first head of the first sequence serves all.
Tensors expanded(Tensors tensors) {
  for (Tensor* tensor : {&tensors.k, &tensors.v}) tensor->stride_head = tensor->stride_batch = 0;
  return tensors;
}

TEST_P(Expanded, StridesOfZeroMatchTheOracle) {
  ScopedContext context(gpu_context());
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4 seqlen=150:210 head_dim=64 causal lse");
  HostProblem host = make_host_problem(problem, 11);
  const Reference expected = reference_attention(problem, expanded(host.tensors()),
                                                 all_rows({problem}));
  GpuProblem gpu(host);
  for (const Compiled& compiled : compile_some(*GetParam(), problem, 2, 3)) {
    SCOPED_TRACE(to_string(compiled.candidate.config));
    ASSERT_EQ(compiled.failure, "");
    const Loaded loaded(compiled);
    gpu.upload(host);
    const Buffer workspace = loaded.make_workspace();
    check(driver().cuCtxSynchronize(), "wait for the uploads");
    Stream stream;
    loaded.run(expanded(gpu.tensors), workspace, stream.get());
    stream.synchronize();
    HostProblem after = host;
    gpu.download(after);
    const Verdict verdict = compare(problem, after.tensors(), expected);
    EXPECT_TRUE(verdict.passed()) << to_string(verdict);
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, Expanded, testing::ValuesIn(all_families_of(Op::kForward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
