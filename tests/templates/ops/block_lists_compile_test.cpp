// block_lists_compile_test.cpp - NVRTC compiles the kernels that make lists of block masks, for
// every size of blocks and without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "attnforge/code_texts.h"
#include "attnforge/error.h"
#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/ops/block_lists/host.h"
#include "templates/ops/clear_rest/host.h"
#include "tests/support/argument_fields.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

Problem problem_of(const CodeTexts& texts) {
  Problem problem = parse_problem("fwd bf16 batch=2 num_heads=16:4 seqlen=8192 head_dim=128");
  add_code(problem, texts);
  return mask_text_alone(problem);
}

BlockMaskShape blocks_of(int block_q, int block_kv) {
  return {.block_q = block_q, .block_kv = block_kv, .seqlen_q = 8192, .seqlen_kv = 8192};
}

TEST(BlockTextKernels, CompileWithoutSpillsForAllBlocks) {
  struct Case {
    Problem text;
    BlockMaskShape shape;
    const char* arch;
  };
  std::vector<Case> cases;
  for (const int block_q : {16, 128}) {  // fewer rows than lanes, and more
    for (const int block_kv : {16, 32, 64, 128})
      cases.push_back({problem_of({.mask = "k <= q"}), blocks_of(block_q, block_kv), "90a"});
  }
  for (const CodeTexts& texts : {documents(), prefix_lm(), dilated_window(1024, 4)}) {
    for (const char* arch : {"80", "90a"})
      cases.push_back({problem_of(texts), blocks_of(128, 128), arch});
  }
  const std::vector<std::string> said = test::compile_together(cases.size(), [&](std::size_t i) {
    const Case& c = cases[i];
    const auto cubin = test::compiled(block_text_source(c.text, c.shape),
                                      typical_device(c.arch).arch);
    const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
    return spills == 0 ? std::string() : fmt::format("{} bytes of spills", spills);
  });
  for (std::size_t i = 0; i < cases.size(); ++i)
    EXPECT_EQ(said[i], "") << cases[i].text.mask << " in blocks of " << cases[i].shape.block_q
                           << ":" << cases[i].shape.block_kv << " on sm_" << cases[i].arch;
}

TEST(BlockTextKernels, NameLineAndColumnOfAWrongText) {
  const Problem text = problem_of({.mask = "k <=\n qq"});
  try {
    compile(block_text_source(text, blocks_of(64, 64)), typical_device("80").arch);
    FAIL() << "it compiles";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCompile);
    EXPECT_THAT(error.what(), testing::HasSubstr("mask, line 2, column 2"));
    EXPECT_THAT(error.what(), testing::HasSubstr("   qq\n")) << "and nothing after it";
  }
}

TEST(BlockListKernels, CompileForEveryArch) {
  for (const char* arch : {"80", "86", "90a", "120"}) {
    const auto cubin = test::compiled(block_lists_source(), typical_device(arch).arch);
    EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0) << arch;
  }
}

TEST(ClearRestKernel, CompilesForEveryArch) {
  for (const char* arch : {"80", "86", "90a", "120"}) {
    const auto cubin = test::compiled(clear_rest_source(), typical_device(arch).arch);
    EXPECT_EQ(cubin.spill_store_bytes + cubin.spill_load_bytes, 0) << arch;
  }
}

TEST(BlockTextSteps, FillTheWholeArgument) {
  for (const CodeTexts& texts : {documents(), CodeTexts{.mask = "k <= q"}}) {
    const Problem text = problem_of(texts);
    const BlockMaskShape shape = blocks_of(128, 64);
    const LaunchStep states = block_states_step(text, shape, {});
    EXPECT_EQ(test::argument_fault(states), "");
    EXPECT_EQ(states.grid.x, 64u * 128u / 8u) << "a warp a block";
    EXPECT_EQ(test::argument_fault(block_bits_step(text, shape, {}, 5)), "");
  }
}

TEST(BlockTextKernels, AskForTermsThatAreWindowsToOthersToo) {
  const Problem text = problem_of({.mask = "k <= q && odd[k]", .args = "bool* odd"});
  EXPECT_THAT(block_text_source(text, blocks_of(64, 64)).entry,
              testing::HasSubstr("k <= q && odd[k]"));
}

TEST(MaskTextAlone, HasNothingThatItsKernelsNeedNotKnow) {
  Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=16:4 seqlen=100:200 head_dim=128 causal softcap=30 lse blocks=64 "
      "lengths=used");
  Problem other = parse_problem("fwd fp32 batch=2 num_heads=16:4 seqlen=100:200 head_dim=64");
  problem.score = "s * 2";
  problem.mask = other.mask = "k % 2 == 0";
  EXPECT_EQ(block_text_source(mask_text_alone(problem), blocks_of(64, 64)).text,
            block_text_source(mask_text_alone(other), blocks_of(64, 64)).text);
}

}  // namespace
}  // namespace attnforge
