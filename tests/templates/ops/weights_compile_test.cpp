// weights_compile_test.cpp - NVRTC compiles the kernels of attention weights for every arch and
// part, without spills, and their launches fill their arguments. Needs NVRTC alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/ops/weights/host.h"
#include "tests/support/argument_fields.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

struct Case {
  const char* words;
  const char* arch;
};
const std::vector<Case> kCases = {
    {"fwd bf16 num_heads=8:2 seqlen=4096 head_dim=128 causal", "80"},
    {"fwd fp16 num_heads=8 seqlen=4096 head_dim=72 softcap=30 alignment=4", "86"},
    {"fwd fp32 num_heads=8 seqlen=4096 head_dim=64 window_left=100 sinks", "90a"},
    {"fwd bf16 batch=4 num_heads=8:2 seqlen=1:4096 head_dim=128 lengths=used page_size=16", "90a"},
    {"fwd bf16 batch=4 num_heads=8 seqlen=4096 head_dim=512 lengths=packed causal", "90a"},
    {"fwd bf16 num_heads=8 seqlen=4096 head_dim=64 blocks=64 mask_bits", "120"},
    {"fwd bf16 num_heads=8 seqlen=4096 head_dim=64 score=\"s + slope[head] * (k - q)\" "
     "mask=\"k <= q || k < 10\" args=\"float* slope\"",
     "90a"},
};

TEST(WeightsKernels, CompileWithoutSpillsAndFillTheirArguments) {
  const std::size_t count = 2 * kCases.size();
  const std::vector<std::string> said = test::compile_together(count, [&](std::size_t i) {
    const Case& c = kCases[i / 2];
    const WeightsOf what = i % 2 == 0 ? WeightsOf::kRows : WeightsOf::kQueries;
    const Problem problem = weights_problem(parse_problem(c.words));
    if (const auto fault = test::argument_fault(weights_step(problem, what, {.num_rows = 9}));
        !fault.empty())
      return fault;
    const auto cubin = test::compiled(weights_source(problem, what), typical_device(c.arch).arch);
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills == 0 ? std::string() : fmt::format("{} bytes of spills", spills);
  });
  for (std::size_t i = 0; i < count; ++i)
    EXPECT_EQ(said[i], "") << kCases[i / 2].words << (i % 2 == 0 ? ", rows" : ", sums");
}

TEST(WeightsKernels, DependOnWhatTheyReadAlone) {
  const Problem a = parse_problem(
      "fwd bf16 num_heads=4 seqlen=64 head_dim=64:128 causal sinks batch_invariant");
  const Problem b = parse_problem("fwd bf16 num_heads=4 seqlen=64 head_dim=64 window_left=3 lse");
  EXPECT_EQ(weights_source(weights_problem(a), WeightsOf::kQueries).text,
            weights_source(weights_problem(b), WeightsOf::kQueries).text);
}

}  // namespace
}  // namespace attnforge
