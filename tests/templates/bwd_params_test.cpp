// bwd_params_test.cpp - the steps around a backward kernel, as launches: sizes, places, order.
#include "templates/host/bwd_params.h"

#include <gtest/gtest.h>

#include <utility>

#include "generator/arch.h"
#include "templates/host/fwd_params.h"
#include "tests/support/argument_parts.h"

namespace attnforge {
namespace {

struct MyParams : BwdParams {
  BwdScratch scratch;
  int mine;
};

Launch launch_of(const Problem& problem, const BwdWork& work, std::string_view arch) {
  LaunchStep step = step_of("mine", 128, 0);
  Argument argument = Argument::of<MyParams>(step);
  argument.bwd(problem).end_of_base<BwdParams>();
  add_scratch(argument, work);
  argument.value(7).done();
  Launch own{.steps = {std::move(step)}};
  return with_bwd_steps(std::move(own), problem, work, arch_named(arch));
}

TEST(BwdSteps, StandAroundTheFamilysOwnAndOverlapOnHopper) {
  const Problem p = parse_problem("bwd bf16 batch=2 num_heads=4:2 seqlen=100:70 head_dim=72:40");
  const BwdWork work = bwd_work(p, {.block_m = 64, .dq_columns = 80, .zero_bytes = 48});
  EXPECT_EQ(work.rows_padded, 128);
  EXPECT_EQ(work.delta, 2 * 4 * 128 * 4u);
  EXPECT_EQ(work.dq_sums, 2 * work.delta);
  EXPECT_EQ(work.zeros, work.dq_sums + 2 * 4 * 128 * 80 * 4);
  EXPECT_EQ(work.bytes, work.zeros + 48);
  for (const bool hopper : {true, false}) {
    const Launch launch = launch_of(p, work, hopper ? "90a" : "86");
    ASSERT_EQ(launch.steps.size(), 3u);
    EXPECT_EQ(own_step(launch), 1u);
    EXPECT_EQ(launch.steps[0].kernel, "bwd_rows");
    EXPECT_EQ(launch.steps[2].kernel, "bwd_dq");
    // 40 columns are 5 vectors: 8 lanes a row, 32 rows a block.
    EXPECT_EQ(launch.steps[0].grid.x, 2 * 4 * 128 / 32u);
    EXPECT_EQ(launch.steps[2].grid.x, 2 * 4 * 2u) << "a tile a block";
    EXPECT_FALSE(launch.steps[0].overlaps_previous);
    EXPECT_EQ(launch.steps[1].overlaps_previous, hopper);
    EXPECT_EQ(launch.steps[2].overlaps_previous, hopper);
    EXPECT_EQ(launch.workspace_bytes, work.bytes);
    for (const LaunchStep& step : launch.steps) {
      EXPECT_EQ(test::argument_fault(step), "") << step.kernel;
      EXPECT_EQ(test::parts_of<GradientsArgument>(step).size(), 1u);
      EXPECT_EQ(test::parts_of<ScratchArgument>(step).size(), 3u);
    }
    const auto scratch = test::planned_at<BwdScratch>(launch.steps[1], sizeof(BwdParams));
    EXPECT_EQ(scratch.rows_padded, 128);
    EXPECT_EQ(scratch.dq_columns, 80);
    const auto zeros = test::planned_at<u64>(launch.steps[0],
                                             sizeof(BwdParams) + sizeof(BwdScratch));
    EXPECT_EQ(zeros, (2 * 4 * 128 * 80 * 4 + 48) / 16u);
  }
}

TEST(BwdSteps, ThereIsNoneAfterAKernelThatWritesDqItself) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=100 head_dim=64");
  const Launch launch = launch_of(p, bwd_work(p, {.block_m = 64}), "90a");
  ASSERT_EQ(launch.steps.size(), 2u);
  EXPECT_EQ(own_step(launch), 1u);
  EXPECT_EQ(launch.workspace_bytes, 2 * 4 * 128 * 4u);
}

/// The bits of tiles end where the rows' scratch begins: a kernel finds them by that.
TEST(BwdSteps, UnderABlockMaskTheTilesComeFirst) {
  const Problem p = parse_problem(
      "bwd bf16 batch=2 num_heads=4:2 seqlen=5000:700 head_dim=64 blocks=32 mask_heads=2 "
      "mask_batch=2");
  const BwdWork work = bwd_work(p, {.block_m = 64, .block_n = 128, .dq_columns = 64});
  // 6 key tiles, 79 query tiles in 3 words twice.
  EXPECT_EQ(work.lse_log2, scratch_aligned(2 * 2 * 6 * 3 * 2 * 4));
  EXPECT_EQ(work.delta, work.lse_log2 + 2 * 4 * 79 * 64 * 4);
  const Launch launch = launch_of(p, work, "90a");
  ASSERT_EQ(launch.steps.size(), 4u);
  EXPECT_EQ(own_step(launch), 2u);
  EXPECT_EQ(launch.steps[0].kernel, "bwd_tiles");
  EXPECT_EQ(launch.steps[0].grid.x, 2 * 2 * 6 * 3 / 8u) << "a warp a word";
  EXPECT_FALSE(launch.steps[0].overlaps_previous);
  EXPECT_FALSE(launch.steps[1].overlaps_previous) << "the kernel waits for the rows alone";
  EXPECT_EQ(test::parts_of<BlockMaskArgument>(launch.steps[0]).size(), 1u);
}

TEST(BwdSteps, OfNoQueriesTheFamilysOwnIsAll) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=0:100 head_dim=64");
  const Launch launch = launch_of(p, bwd_work(p, {.block_m = 64, .dq_columns = 64}), "90a");
  ASSERT_EQ(launch.steps.size(), 1u);
  EXPECT_EQ(launch.steps[0].kernel, "mine");
  EXPECT_FALSE(launch.steps[0].overlaps_previous);
}

TEST(BwdSteps, OfNoKeysDqIsWrittenAllTheSame) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=100:0 head_dim=64");
  const Launch launch = with_bwd_steps({}, p, bwd_work(p, {.block_m = 64, .dq_columns = 64}),
                                       arch_named("90a"));
  ASSERT_EQ(launch.steps.size(), 2u);
  EXPECT_EQ(launch.steps[1].kernel, "bwd_dq");
}

}  // namespace
}  // namespace attnforge
