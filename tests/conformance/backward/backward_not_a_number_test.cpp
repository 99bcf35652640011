// backward_not_a_number_test.cpp - a NaN in an input of backward shows in every gradient that
// depends on it, and in no other head.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "tests/conformance/backward/backward_proof.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

class BackwardNotANumber : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
  }
};

/// In one of the last rows of head 1.
void put_nan(HostProblem& host, const PlacedTensor& tensor) {
  const std::int64_t at = 70 * tensor.strides.stride_row + tensor.strides.stride_head + 5;
  std::byte* const data = host.storages[static_cast<std::size_t>(tensor.storage)].data() +
                          tensor.offset_bytes;
  store_element(host.problem.dtype_q, data, at, std::numeric_limits<float>::quiet_NaN());
}

TEST_P(BackwardNotANumber, ShowsInWhatDependsOnIt) {
  const ScopedContext context(gpu_context());
  for (const char* words :
       {"fp16", "bf16", "fp32", "bf16 softcap=20", "bf16 deterministic gradients=fp32"}) {
    const Problem problem = parse_problem(
        fmt::format("bwd {} num_heads=2 seqlen=100:130 head_dim=64", words));
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, 2, 3);
    if (some.empty()) continue;  // a problem that the family does not take
    const HostProblem clean = make_host_problem(problem, 11);
    GpuProblem gpu(clean);
    for (const PlacedTensor HostProblem::*input :
         {&HostProblem::q, &HostProblem::k, &HostProblem::v, &HostProblem::dout}) {
      HostProblem host = clean;
      put_nan(host, host.*input);
      set_forward_outputs(host);
      const ReferenceGradients expected = reference_gradients(problem, host.tensors());
      for (const Compiled& compiled : some) {
        SCOPED_TRACE(to_string(compiled.candidate.config));
        ASSERT_EQ(compiled.failure, "");
        HostProblem after = after_run(Loaded(compiled), gpu, host);
        const GradientVerdict verdict = compare_gradients(problem, after.tensors(), expected);
        EXPECT_TRUE(verdict.passed()) << to_string(verdict);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, BackwardNotANumber,
                         testing::ValuesIn(all_families_of(Op::kBackward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
