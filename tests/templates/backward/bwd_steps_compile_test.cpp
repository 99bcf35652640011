// bwd_steps_compile_test.cpp - NVRTC compiles the steps around a backward kernel, for every kind of
// rows that they take. Needs NVRTC, but neither a GPU nor a driver.
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/shape.h"
#include "runtime/compile/compiler.h"
#include "templates/backward/host.h"
#include "templates/host/kernel_source.h"
#include "templates/oracle/bwd_naive/config.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

struct StepsCase {
  const char* arch;
  const char* problem;
};
constexpr StepsCase kStepsCases[] = {
    {"90a", "bwd bf16 batch=2 num_heads=4 seqlen=100 head_dim=128"},
    {"80", "bwd fp16 batch=2 num_heads=4:2 seqlen=100 head_dim=72:40 alignment=2 accumulate"},
    {"86",
     "bwd bf16 num_heads=4 seqlen=100 head_dim=64 alignment=8 gradients=fp32 lengths=packed "
     "sinks"},
    {"90a", "bwd fp32 num_heads=4 seqlen=100 head_dim=8:256 lengths=used dlse accumulate sinks"},
};

/// The steps without the kernel, which comes last: bwd_naive's, which has no use for them.
Source source_of(const Problem& problem, const BwdSteps& steps) {
  const Shape shape = shape_of(problem);
  const KernelTraits kernel{.symbol = "beside",
                            .folder = "oracle/bwd_naive",
                            .type = "BwdNaive",
                            .params = OwnParams::of<BwdNaiveParams>("BwdNaiveParams"),
                            .threads = "num_threads",
                            .blocks_per_sm = "blocks_per_sm()",
                            .pieces = &kBackwardPieces,
                            .gradients = &steps,
                            .step_argument = &kBwdStepArgument};
  Source source = kernel_source(parse_config("bwd_naive num_threads=128"), shape,
                                assemble(problem, shape, kernel));
  source.text.erase(source.text.rfind("extern \"C\" __global__"));
  return source;
}

TEST(BwdSteps, CompileWithoutSpillsForRowsOfAnyKind) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const auto said = test::compile_together(std::size(kStepsCases), [](std::size_t i) {
    const Problem problem = parse_problem(kStepsCases[i].problem);
    const auto cubin = test::compiled(
        source_of(problem, {.block_m = 64, .dq_columns = (problem.head_dim + 15) / 16 * 16}),
        arch_named(kStepsCases[i].arch));
    return cubin.spill_store_bytes == 0 ? std::string() : "spills";
  });
  for (std::size_t i = 0; i < std::size(kStepsCases); ++i)
    EXPECT_EQ(said[i], "") << kStepsCases[i].arch << ": " << kStepsCases[i].problem;
}

}  // namespace
}  // namespace attnforge
