// not_a_number_test.cpp - a NaN in an input shows in every output that depends on it, and in no
// other: a kernel that loses it makes plausible numbers out of garbage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "tests/conformance/gpu.h"
#include "tests/conformance/options.h"
#include "tests/conformance/proof.h"

namespace attnforge {
namespace {

using namespace test;

class NotANumber : public testing::TestWithParam<const Family*> {
 protected:
  void SetUp() override {
    const std::string unusable = gpu_problem();
    if (!unusable.empty()) GTEST_SKIP() << unusable;
  }
};

/// The NaN that GPUs make, all bits but the sign, as an element of one of the last rows.
void put_nan(HostProblem& host, const PlacedTensor& tensor, std::int64_t row, int head) {
  const int size = host.problem.dtype_q == DType::kFp32 ? 4 : 2;
  const std::int64_t at = row * tensor.strides.stride_row + head * tensor.strides.stride_head + 5;
  std::byte* bytes = host.storages[static_cast<std::size_t>(tensor.storage)].data() +
                     tensor.offset_bytes + at * size;
  const std::uint32_t nan = size == 4 ? 0x7fffffffu : 0x7fffu;
  std::memcpy(bytes, &nan, static_cast<std::size_t>(size));
}

TEST_P(NotANumber, ShowsInWhatDependsOnIt) {
  const ScopedContext context(gpu_context());
  for (const char* words : {"fp16", "bf16", "fp32", "fp32 tf32", "bf16 softcap=20",
                            "fp16 softcap=1", "fp32 softcap=1"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd {} num_heads=2 seqlen=100:130 head_dim=64 lse", words));
    const std::vector<Compiled> some = compile_some(*GetParam(), problem, 2, 3);
    if (some.empty()) continue;  // a problem that the family does not take
    const HostProblem clean = make_host_problem(problem, 11);
    GpuProblem gpu(clean);
    for (const PlacedTensor HostProblem::*input :
         {&HostProblem::q, &HostProblem::k, &HostProblem::v}) {
      HostProblem host = clean;
      put_nan(host, host.*input, 70, 1);
      const Reference expected = reference_attention(problem, host.tensors(), all_rows({problem}));
      for (const Compiled& compiled : some) {
        SCOPED_TRACE(to_string(compiled.candidate.config));
        ASSERT_EQ(compiled.failure, "");
        HostProblem after = after_run(Loaded(compiled), gpu, host);
        const Verdict verdict = compare(problem, after.tensors(), expected);
        EXPECT_TRUE(verdict.passed()) << to_string(verdict);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, NotANumber, testing::ValuesIn(all_families_of(Op::kForward)),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
