// bwd_params_test.cpp - the steps around a backward kernel, as launches: sizes, places, order.
#include "templates/backward/host.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "generator/tensors/stored_rows.h"
#include "templates/bwd_wgmma_sm90a/config.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/parts/block_mask/host.h"
#include "templates/parts/group_splits/params.h"
#include "templates/parts/lengths/host.h"
#include "templates/parts/query_bits/host.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

struct MyParams : BwdParams {
  BwdScratch scratch;
  int mine;
};

/// A backward kernel with such steps around it. It borrows both.
struct Backward {
  const Problem& problem;
  const BwdSteps& steps;
  Shape shape = shape_of(problem);
  KernelTraits kernel{.params = OwnParams::of<MyParams>("MyParams"),
                      .pieces = &kBackwardPieces,
                      .gradients = &steps,
                      .step_argument = &kBwdStepArgument};
  Assembly assembly = assemble(problem, shape, kernel);

  BwdWork work() const { return bwd_work(launch_work(assembly)); }
  /// With the kernel itself, or without one.
  Launch launch(std::string_view arch, bool own = true) const {
    const LaunchWork of_launch = launch_work(assembly, typical_device(arch));
    if (!own) return attnforge::launch_of(of_launch, {});
    LaunchStep step = step_of("mine", 128, 0);
    fill_argument(step, of_launch, [&](Argument& argument) {
      add_bwd(argument, problem).end_of_base<BwdParams>();
      add_scratch(argument, bwd_work(of_launch));
      argument.value(7);
    });
    return attnforge::launch_of(of_launch, {&step, 1});
  }
};
BwdWork work_of(const Problem& problem, const BwdSteps& steps) {
  return Backward{problem, steps}.work();
}
Launch launch_of(const Problem& problem, const BwdSteps& steps, std::string_view arch) {
  return Backward{problem, steps}.launch(arch);
}

u64 zeros_of(const Launch& launch) {
  return test::planned_at<u64>(launch.steps[0],
                               sizeof(BwdParams) + sizeof(BwdScratch) + sizeof(void*));
}

TEST(BwdSteps, StandAroundTheFamilysOwnAndOverlapOnHopper) {
  const Problem p = parse_problem("bwd bf16 batch=2 num_heads=4:2 seqlen=100:70 head_dim=72:40");
  const BwdSteps steps{.block_m = 64, .dq_columns = 80, .turns = 3};
  const BwdWork work = work_of(p, steps);
  EXPECT_EQ(work.rows_padded, 128);
  EXPECT_EQ(work.delta, 2 * 4 * 128 * 4u);
  EXPECT_EQ(work.turns, 2 * work.delta);
  EXPECT_EQ(work.dq_sums, work.turns + 256) << "2 x 4 x 2 tiles of 3, aligned";
  EXPECT_EQ(work.bytes, work.dq_sums + 2 * 4 * 128 * 80 * 4);
  for (const bool hopper : {true, false}) {
    const Launch launch = launch_of(p, steps, hopper ? "90a" : "86");
    ASSERT_EQ(launch.steps.size(), 3u);
    EXPECT_EQ(own_step(launch), 1u);
    EXPECT_EQ(launch.steps[0].kernel, "bwd_rows");
    EXPECT_EQ(launch.steps[2].kernel, "bwd_dq");
    // 40 columns are 5 vectors: 8 lanes a row, 32 rows at a time, 4 times.
    EXPECT_EQ(launch.steps[0].grid.x, 2 * 4 * 128 / 128u);
    EXPECT_EQ(launch.steps[2].grid.x, 2 * 4 * 2u) << "a tile a block";
    EXPECT_FALSE(launch.steps[0].overlaps_previous);
    EXPECT_EQ(launch.steps[1].overlaps_previous, hopper);
    EXPECT_EQ(launch.steps[2].overlaps_previous, hopper);
    EXPECT_EQ(launch.workspace_bytes, work.bytes);
    for (const LaunchStep& step : launch.steps) {
      EXPECT_EQ(test::argument_fault(step), "") << step.kernel;
      EXPECT_EQ(test::places_of(own_argument<bind_gradients<false>>(), step).size(), 1u);
      const bool own = step.kernel == "mine";
      EXPECT_EQ(test::parts_of<ScratchArgument>(step).size(), own ? 3u : 5u);
    }
    const auto scratch = test::planned_at<BwdScratch>(launch.steps[1], sizeof(BwdParams));
    EXPECT_EQ(scratch.rows_padded, 128);
    EXPECT_EQ(scratch.dq_columns, 80);
    EXPECT_EQ(zeros_of(launch), 256 / 16u) << "of the turns alone";
  }
}

/// bwd_dq would wait for ever for parts that are not there, and not for those that are not counted.
TEST(BwdSteps, KnowHowManyPartsOfTheKernelAddToAHeadsSums) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  int zeros_ahead = 0, splits = 0;
  for (const char* words : {"seqlen=300:700", "seqlen=70:0", "seqlen=70:0 lengths=packed",
                            "seqlen=2048 causal deterministic", "seqlen=2048 lengths=packed",
                            "seqlen=2048 lengths=used", "seqlen=2048 blocks=64:64"}) {
    for (const int head_dim : {128, 256}) {
      const Problem p = parse_problem(
          fmt::format("bwd bf16 batch=8 num_heads=32:16 head_dim={} {}", head_dim, words));
      for (const Candidate& candidate : candidates(family, p, device)) {
        const Config& c = candidate.config;
        const int keys = c.get("split_columns") ? 64 : 128;
        const int parts = (c.get("dq") == kDqFromRegs ? 8 : 2) * c.get("group_splits");
        const Launch launch = family.launch(c, p, device);
        const LaunchStep& bwd_dq = launch.steps.back();
        std::int64_t tiles = tiles_of_stored(p, stored_rows(p).kv, keys);
        if (p.lengths == Lengths::kPacked) tiles = std::min<std::int64_t>(tiles, 1);  // of each
        EXPECT_EQ(test::planned_at<BwdStepParams>(bwd_dq, 0).parts_of_head, tiles * parts)
            << to_string(c) << " for " << words;
        zeros_ahead += c.get("zeros_ahead");
        splits += c.get("group_splits") > 1;
        if (p.seqlen_kv == 0) continue;
        EXPECT_EQ(test::planned_at<std::size_t>(launch.steps[own_step(launch)],
                                                offsetof(BwdWgmmaSm90aParams, added)),
                  test::planned_at<std::size_t>(bwd_dq, offsetof(BwdStepParams, added)))
            << "where one counts, the other looks";
      }
    }
  }
  EXPECT_GT(zeros_ahead, 10);
  EXPECT_GT(splits, 10);
}

TEST(BwdSteps, SetTheSumsToZerosWhereTheKernelOnlyAdds) {
  const Problem p = parse_problem("bwd bf16 batch=2 num_heads=4:2 seqlen=100:70 head_dim=72:40");
  const BwdSteps steps{.block_m = 64, .dq_columns = 80};
  const BwdWork work = work_of(p, steps);
  EXPECT_EQ(work.turns, work.dq_sums) << "there are none";
  EXPECT_EQ(zeros_of(launch_of(p, steps, "90a")), 2 * 4 * 128 * 80 * 4 / 16u);
}

/// What the kernel's own blocks do not set: the sums of the first heads, and what they count in.
TEST(BwdSteps, SetTheFirstHeadsToZerosWhereTheKernelSetsTheRest) {
  const Problem p = parse_problem("bwd bf16 batch=2 num_heads=4:2 seqlen=100:70 head_dim=72:40");
  const BwdSteps steps{.block_m = 64, .dq_columns = 80, .zero_heads = 2, .counters = 4};
  const BwdWork work = work_of(p, steps);
  EXPECT_EQ(work.counters, 2 * work.delta);
  EXPECT_EQ(work.dq_sums, work.counters + 256) << "4 counters, aligned";
  EXPECT_EQ(work.bytes, work.dq_sums + 2 * 4 * 128 * 80 * 4);
  EXPECT_EQ(zeros_of(launch_of(p, steps, "90a")), (256 + 2 * 128 * 80 * 4) / 16u);
}

TEST(BwdSteps, SumUpGradientsOfSinksLast) {
  const Problem p = parse_problem("bwd bf16 batch=2 num_heads=4:2 seqlen=100:70 head_dim=64 sinks");
  const BwdSteps steps{.block_m = 64, .dq_columns = 64};
  const BwdWork work = work_of(p, steps);
  Launch launch = launch_of(p, steps, "90a");
  ASSERT_EQ(launch.steps.size(), 4u);
  EXPECT_EQ(own_step(launch), 1u);
  const LaunchStep& last = launch.steps.back();
  EXPECT_EQ(last.kernel, "bwd_sinks");
  EXPECT_EQ(last.grid.x, 4u) << "a head a block";
  EXPECT_TRUE(last.overlaps_previous);
  EXPECT_EQ(test::argument_fault(last), "");
  // dsinks of no rows are zeros, and somebody must write them.
  for (const char* text : {"bwd bf16 num_heads=4 seqlen=0 head_dim=64 sinks",
                           "bwd bf16 batch=0 num_heads=4 seqlen=9 head_dim=64 sinks"}) {
    const Problem none = parse_problem(text);
    launch = Backward{none, steps}.launch("90a", false);
    ASSERT_EQ(launch.steps.size(), 1u) << text;
    EXPECT_EQ(own_step(launch), 0u);
    EXPECT_FALSE(launch.steps[0].overlaps_previous);
  }
}

/// As the plan's workspace says: not of as many rows as every sequence might have.
TEST(BwdSteps, OfPackedSequencesTakeMemoryByTokens) {
  const std::string
      text = "bwd bf16 batch=64 num_heads=4:2 seqlen=16384 tokens=32768 head_dim=64 lengths=packed";
  const Problem p = parse_problem(text);
  const BwdSteps steps{.block_m = 64, .dq_columns = 64};
  const BwdWork work = work_of(p, steps);
  EXPECT_EQ(work.rows_padded, 32768 + 64 * 64);
  EXPECT_EQ(work.bytes, 4u * (32768 + 64 * 64) * (8 + 64 * 4));
  const Launch launch = launch_of(p, steps, "90a");
  ASSERT_EQ(launch.steps.size(), 3u);
  // 64 columns are 8 lanes a row, 128 rows a block.
  EXPECT_EQ(launch.steps[0].grid.x, 4u * (32768 + 64 * 64) / 128);
  EXPECT_EQ(launch.steps[2].grid.x, 4u * (512 + 64));
  const TileOrder order = key_tile_order(p, 128, 0);
  EXPECT_EQ(order.m_blocks, 256 + 64) << "key tiles of all sequences";
  EXPECT_EQ(order.heads, 2);
  EXPECT_EQ(key_tile_order(parse_problem("bwd bf16 batch=3 num_heads=2 seqlen=9:0 head_dim=64 "
                                         "lengths=packed"),
                           128, 0)
                .m_blocks,
            0)
      << "nothing to launch";
}

TEST(BwdSteps, ThereIsNoneAfterAKernelThatWritesDqItself) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=100 head_dim=64");
  const Launch launch = launch_of(p, {.block_m = 64}, "90a");
  ASSERT_EQ(launch.steps.size(), 2u);
  EXPECT_EQ(own_step(launch), 1u);
  EXPECT_EQ(launch.workspace_bytes, 2 * 4 * 128 * 4u);
}

/// The bits of tiles end where the rows' scratch begins: a kernel finds them by that.
TEST(BwdSteps, UnderABlockMaskTheTilesComeFirst) {
  const Problem p = parse_problem(
      "bwd bf16 batch=2 num_heads=4:2 seqlen=5000:700 head_dim=64 blocks=32 mask_heads=2 "
      "mask_batch=2");
  const BwdSteps steps{.block_m = 64, .block_n = 128, .dq_columns = 64};
  const BwdWork work = work_of(p, steps);
  // 6 key tiles, 79 query tiles in 3 words twice.
  EXPECT_EQ(work.lse_log2, scratch_aligned(2 * 2 * 6 * 3 * 2 * 4));
  EXPECT_EQ(work.delta, work.lse_log2 + 2 * 4 * 79 * 64 * 4);
  const Launch launch = launch_of(p, steps, "90a");
  ASSERT_EQ(launch.steps.size(), 4u);
  EXPECT_EQ(own_step(launch), 2u);
  EXPECT_EQ(launch.steps[0].kernel, "bwd_tiles");
  EXPECT_EQ(launch.steps[0].grid.x, 2 * 2 * 6 * 3 / 8u) << "a warp a word";
  EXPECT_FALSE(launch.steps[0].overlaps_previous);
  EXPECT_FALSE(launch.steps[1].overlaps_previous) << "the kernel waits for the rows alone";
  EXPECT_EQ(test::places_of(own_argument<bind_block_mask>(), launch.steps[0]).size(), 1u);
}

TEST(BwdSteps, BitsOfTilesLieInTheWorkspaceWhereThereAreNoRows) {
  const Problem p = parse_problem(
      "bwd bf16 batch=0 num_heads=2 seqlen=64:100 head_dim=64 blocks=64");
  const BwdSteps steps{.block_m = 64, .block_n = 64};
  const std::int64_t bytes = query_tile_bits(p, shape_of(p), 64, 64).bytes();
  ASSERT_GT(bytes, 0);
  EXPECT_GE(work_of(p, steps).lse_log2, static_cast<std::size_t>(bytes));
}

/// A mask's text has bits of tiles, and before them of pairs, unless order is asked for.
TEST(BwdSteps, UnderAMasksTextItsPairsAndTheTilesComeFirst) {
  Problem p = parse_problem(
      "bwd bf16 batch=2 num_heads=4:2 seqlen=5000:700 head_dim=64 args=\"int* document\" "
      "mask=\"document[q] == document[k] + batch\"");
  const BwdSteps steps{.block_m = 80, .block_n = 128, .dq_columns = 64};
  // 6 key tiles and 63 query tiles of two sequences; 80 queries are 3 words of a key.
  EXPECT_EQ(work_of(p, steps).lse_log2,
            2 * 6 * 63 * 128 * 3 * 4 + scratch_aligned(2 * 6 * 2 * 2 * 4));
  const Launch launch = launch_of(p, steps, "90a");
  ASSERT_EQ(launch.steps.size(), 4u);
  EXPECT_EQ(launch.steps[0].kernel, "bwd_tiles");
  EXPECT_EQ(launch.steps[0].grid.x, 2 * 6 * 2 * 4u) << "four blocks two words";
  p.mask = "document[q] == document[k] + head";
  EXPECT_EQ(launch_of(p, steps, "90a").steps[0].grid.x, 4 * 6 * 2 * 4u);
  p.deterministic = true;
  EXPECT_EQ(work_of(p, steps).lse_log2, 0u);
  EXPECT_EQ(launch_of(p, steps, "90a").steps[0].kernel, "bwd_rows");
  p.deterministic = false;
  p.seqlen_q = p.seqlen_kv = 100000;
  const std::size_t of_tiles = scratch_aligned(4 * 782 * 40 * 2 * 4);
  EXPECT_EQ(work_of(p, steps).lse_log2, of_tiles) << "bits of pairs would take gigabytes";
}

/// A short sequence's rows fill a tile, of which a step has several blocks; bits of tiles are as
/// many as pairs of them.
TEST(BwdSteps, HaveGridsWhereverAFamilyServes) {
  for (const char* text : {"bwd bf16 batch=1048576 num_heads=1000 seqlen=1 head_dim=256",
                           "bwd bf16 batch=1048576 num_heads=300 seqlen=1 head_dim=256",
                           "bwd bf16 num_heads=1 seqlen=134217728 head_dim=64 blocks=128",
                           "bwd bf16 num_heads=1 seqlen=4194304 head_dim=64 blocks=128"}) {
    const Problem problem = parse_problem(text);
    for (const char* name : {"bwd_mma_sm80", "bwd_wgmma_sm90a"}) {
      const Family& family = *find_family(name);
      for (const Candidate& each : candidates(family, problem, typical_device("90a")))
        EXPECT_NO_THROW(family.launch(each.config, problem, typical_device("90a"))) << text;
    }
  }
}

TEST(BwdSteps, OfNoQueriesTheFamilysOwnIsAll) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=0:100 head_dim=64");
  const Launch launch = launch_of(p, {.block_m = 64, .dq_columns = 64}, "90a");
  ASSERT_EQ(launch.steps.size(), 1u);
  EXPECT_EQ(launch.steps[0].kernel, "mine");
  EXPECT_FALSE(launch.steps[0].overlaps_previous);
}

TEST(BwdSteps, OfNoKeysDqIsWrittenAllTheSame) {
  const Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=100:0 head_dim=64");
  const Launch launch = Backward{p, {.block_m = 64, .dq_columns = 64}}.launch("90a", false);
  ASSERT_EQ(launch.steps.size(), 2u);
  EXPECT_EQ(launch.steps[1].kernel, "bwd_dq");
}

// ---- zeros that blocks of bwd_wgmma_sm90a set ahead ----

std::string zeros_ahead(const char* head_group_mb) {
  return std::string(
             "bwd_wgmma_sm90a split_columns=0 block_m=64 do_stages=2 "
             "ds_stages=2 late_dq=1 dq_rounds=1 dq_stages=1 dq=2 zeros_ahead=1 grid=0 "
             "group_splits=1 alternate=0 "
             "head_group_mb=") +
         head_group_mb;
}

/// A config is chosen for a bucket, whose sizes may have fewer blocks.
TEST(ZerosAhead, AreThoseOfAllHeadsBeforeTheKernelWhereNoHeadIsFarEnough) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Config config = parse_config(zeros_ahead("0"));
  for (const int batch : {1, 100}) {
    const Problem p = parse_problem("bwd bf16 num_heads=4:2 seqlen=128 head_dim=128 batch=" +
                                    std::to_string(batch));
    EXPECT_EQ(illegal(family, config, p, device), "");
    EXPECT_EQ(family.needless(config, p, device) == "", batch == 100);
    const Launch launch = family.launch(config, p, device);
    const ZerosAhead
        zeros = test::planned_at<BwdWgmmaSm90aParams>(launch.steps[own_step(launch)], 0).zeros;
    const int heads = 2 * batch;
    EXPECT_EQ(zeros.lag, std::min(device.num_sms, heads)) << "a block a head";
    const std::size_t counters = scratch_aligned(static_cast<std::size_t>(heads) * 4);
    EXPECT_EQ(zeros_of(launch), (2 * counters + std::size_t(zeros.lag) * 2 * 128 * 128 * 4) / 16)
        << "of heads that are cleared, and of those that are added up";
  }
}

/// When the last of an order's blocks ends, if SMs take them as they come free, and the blocks of a
/// head wait until those of the head `lag` before it have ended; 0: for none. `clocks` of the
/// blocks of a head.
double end_of_blocks(const TileOrder& order, const std::vector<double>& clocks, int num_sms,
                     int lag) {
  std::vector<double> ends(std::size_t(order.heads), 0);
  std::priority_queue<double, std::vector<double>, std::greater<>> sms(
      std::greater<>(), std::vector<double>(std::size_t(num_sms), 0));
  for (int first = 0; first < order.heads; first += order.heads_per_group) {
    const int last = std::min(first + order.heads_per_group, order.heads);
    for (const double each : clocks) {
      for (int head = first; head < last; ++head) {
        const double zeros = lag > 0 && head >= lag ? ends[std::size_t(head - lag)] : 0;
        const double end = std::max(sms.top(), zeros) + each;
        sms.pop();
        sms.push(end);
        ends[std::size_t(head)] = std::max(ends[std::size_t(head)], end);
      }
    }
  }
  return *std::max_element(ends.begin(), ends.end());
}

/// Of a head's key tiles, which take as long as the query tiles that see them.
std::vector<double> clocks_of_blocks(const std::vector<int>& lengths, bool causal) {
  constexpr double kStart = 2, kTile = 128;
  std::vector<double> clocks;
  for (const int length : lengths) {
    for (int key = 0; key < length; key += int(kTile))
      clocks.push_back(kStart + (length - (causal ? key : 0)) / kTile);
  }
  return clocks;
}

struct OfZeros {
  const char* words;
  std::vector<int> lengths;  // of packed sequences
};
/// A block sets zeros when it ends, and those of a later head wait for all of a head's: where these
/// still run, the GPU stands.
TEST(ZerosAhead, AreSetByBlocksThatEndBeforeThoseThatAddStart) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const std::vector<OfZeros> problems = {
      {"num_heads=38 seqlen=4250 batch=4", {}},
      {"num_heads=10 seqlen=6080 batch=5", {}},
      {"num_heads=40 seqlen=14040", {}},
      {"num_heads=16 seqlen=2048 batch=8", {}},
      {"num_heads=20 seqlen=1500 batch=3", {}},
      {"num_heads=64 seqlen=12295 causal", {}},
      {"num_heads=16 seqlen=8192 batch=2 causal", {}},
      {"num_heads=32 seqlen=4096 batch=2 causal", {}},
      {"num_heads=24 seqlen=1111 batch=11 causal", {}},
      {"num_heads=32 seqlen=6144 causal", {}},
      {"num_heads=128 seqlen=3200 batch=9 lengths=packed tokens=9000 causal",
       {700, 150, 900, 1200, 400, 850, 1100, 500, 3200}},
      {"num_heads=40 seqlen=800 batch=5 lengths=packed tokens=2200", {200, 300, 700, 200, 800}},
  };
  for (const OfZeros& each : problems) {
    for (const char* head_group_mb : {"0", "16"}) {
      const Problem p = parse_problem(std::string("bwd bf16 head_dim=128 ") + each.words);
      const Config config = parse_config(zeros_ahead(head_group_mb));
      ASSERT_EQ(illegal(family, config, p, device), "");
      const Launch launch = family.launch(config, p, device);
      const auto params = test::planned_at<BwdWgmmaSm90aParams>(launch.steps[own_step(launch)], 0);
      if (params.zeros.lag == params.order.heads) continue;  // none is set by blocks
      const std::vector<double> clocks = clocks_of_blocks(
          each.lengths.empty() ? std::vector{int(p.seqlen_kv)} : each.lengths,
          key_bounds(p).right.has_value());
      EXPECT_LT(end_of_blocks(params.order, clocks, device.num_sms, params.zeros.lag),
                1.03 * end_of_blocks(params.order, clocks, device.num_sms, 0))
          << each.words << ", groups of " << head_group_mb;
    }
  }
}

/// Blocks wait for those with later keys: started after these, they could keep them from starting.
TEST(OrderOfKeyTiles, HasTheLastKeysFirstWhereTurnsBeginAtTheDiagonal) {
  const Problem p = parse_problem(
      "bwd bf16 num_heads=4 seqlen=1024 head_dim=64 causal "
      "deterministic");
  for (const int dq : {kDqInOrder, kDqFromDiagonal}) {
    const Config config = parse_config(
        "bwd_wgmma_sm90a split_columns=0 block_m=128 do_stages=2 "
        "ds_stages=2 late_dq=1 dq_rounds=1 dq_stages=1 dq=" +
        std::to_string(dq) + " zeros_ahead=0 grid=0 group_splits=1 alternate=0 head_group_mb=0");
    const Family& family = *find_family("bwd_wgmma_sm90a");
    ASSERT_EQ(illegal(family, config, p, typical_device("90a")), "");
    const Launch launch = family.launch(config, p, typical_device("90a"));
    const auto params = test::planned_at<BwdWgmmaSm90aParams>(launch.steps[own_step(launch)], 0);
    EXPECT_EQ(params.order.heavy_last, dq == kDqFromDiagonal);
  }
}

/// Their count is among what bwd_rows sets to zeros. Without queries there is no bwd_rows, and each
/// block has its tile by its own number.
TEST(PersistentBlocks, AreAsManyAsSmsAndAskByACountThatIsSetToZero) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const auto launch_of_problem = [&](const char* dq, const std::string& text) {
    const Config config = parse_config(
        std::string("bwd_wgmma_sm90a split_columns=0 block_m=128 "
                    "do_stages=2 ds_stages=2 late_dq=1 dq_rounds=1 dq_stages=1 ") +
        dq + " grid=2 group_splits=1 alternate=0 head_group_mb=0");
    const Problem p = parse_problem(text);
    if (p.seqlen_q != 0) EXPECT_EQ(illegal(family, config, p, device), "") << text;
    return family.launch(config, p, device);
  };
  for (const char* dq : {"dq=1 zeros_ahead=0", "dq=2 zeros_ahead=1"})
    for (const int heads : {12, 40}) {
      const Launch launch = launch_of_problem(
          dq, fmt::format("bwd bf16 batch=4 num_heads={} seqlen=512 head_dim=64", heads));
      const LaunchStep& own = launch.steps[own_step(launch)];
      EXPECT_EQ(int(own.grid.x), std::min(device.num_sms, 4 * heads * 4)) << dq;
      const auto at = [](const void* planned) { return reinterpret_cast<std::size_t>(planned); };
      const auto begin = at(
          test::planned_at<void*>(launch.steps[0], sizeof(BwdParams) + sizeof(BwdScratch)));
      const auto given = at(test::planned_at<BwdWgmmaSm90aParams>(own, 0).given);
      EXPECT_GE(given, begin);
      EXPECT_LT(given, begin + zeros_of(launch) * 16);
    }
  const Launch none = launch_of_problem("dq=1 zeros_ahead=0",
                                        "bwd bf16 batch=4 num_heads=40 seqlen=0:512 head_dim=64");
  EXPECT_EQ(none.steps[own_step(none)].grid.x, 4u * 40 * 4);
  const auto params = test::planned_at<BwdWgmmaSm90aParams>(none.steps[own_step(none)], 0);
  EXPECT_EQ(params.given, nullptr);
}

/// bwd_rows lists no more, whatever the arrays of lengths say.
TEST(PackedTiles, AreListedUpToThoseOfTheGridForWhichThereIsMemory) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem p = parse_problem(
      "bwd bf16 batch=7 num_heads=8:2 seqlen=500 tokens=900:1300 head_dim=128 lengths=packed");
  for (const Candidate& candidate : candidates(family, p, device)) {
    const Launch launch = family.launch(candidate.config, p, device);
    ASSERT_EQ(launch.steps[0].kernel, "bwd_rows");
    const auto rows = test::planned_at<BwdStepParams>(launch.steps[0], 0);
    const auto places = test::places_of(own_argument<bind_lengths>(), launch.steps[0]);
    ASSERT_EQ(places.size(), 1u);
    const auto lengths = test::planned_at<LengthsParams>(launch.steps[0], places[0]);
    const auto params = test::planned_at<BwdWgmmaSm90aParams>(launch.steps[own_step(launch)], 0);
    ASSERT_EQ(lengths.most_tiles, params.order.m_blocks);
    const auto at = [](const void* planned) { return reinterpret_cast<std::size_t>(planned); };
    const std::size_t list = at(rows.scratch.delta + 8 * rows.scratch.rows_padded);
    ASSERT_LE(list + (1 + params.order.m_blocks) * listed_key_tile_bytes(), at(rows.zeros_begin));
  }
}

/// Nothing sets the counters to 0 there: who waited for them would wait for ever.
TEST(ZerosAhead, AreNotWaitedForWhereThereAreNoQueries) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  int zeros_ahead = 0;
  for (const int head_dim : {64, 128, 192, 256}) {
    const Problem p = parse_problem(
        fmt::format("bwd bf16 batch=8 num_heads=32:16 seqlen=0:2048 head_dim={}", head_dim));
    for (const Candidate& candidate : candidates(family, p, device)) {
      const Launch launch = family.launch(candidate.config, p, device);
      ASSERT_EQ(launch.steps.size(), 1u) << "nothing comes before the kernel";
      const auto params = test::planned_at<BwdWgmmaSm90aParams>(launch.steps[0], 0);
      if (candidate.config.get("zeros_ahead") == 0) continue;
      ++zeros_ahead;
      EXPECT_GE(params.zeros.lag, params.order.heads) << to_string(candidate.config);
    }
  }
  EXPECT_GT(zeros_ahead, 10);
}

/// Blocks of a small last group would begin with the heavy tiles when all others are done.
TEST(OrderOfKeyTiles, HasGroupsOfHeadsOfWhichTheLastIsNearlyFull) {
  EXPECT_EQ(heads_of_group(14.2, 64), 16);
  EXPECT_EQ(heads_of_group(8.1, 36), 9);
  EXPECT_EQ(heads_of_group(8, 64), 8);
  EXPECT_EQ(heads_of_group(100, 64), 64) << "there are no more";
  EXPECT_EQ(heads_of_group(7, 7), 7);
  EXPECT_EQ(heads_of_group(0, 9), 1);
  EXPECT_EQ(heads_of_group(0.3, 9), 1);
  EXPECT_EQ(heads_of_group(5, 0), 1);
  for (int heads = 1; heads < 200; ++heads) {
    for (const double wanted : {1.0, 2.7, 10.0, 33.3, 150.0}) {
      const int count = heads_of_group(wanted, heads);
      ASSERT_TRUE(count >= 1 && count <= heads && count <= std::max(1.0, 1.25 * wanted))
          << heads << " " << wanted;
    }
  }
}

/// Of a group are as many heads as fill the GPU, so that blocks of the next one begin as these end.
TEST(GroupsFromBothEnds, AreAsManyHeadsAsFillTheGpuWhereTheirBlocksDiffer) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const auto config_of = [](bool alternate) {
    return parse_config(
        "bwd_wgmma_sm90a split_columns=0 block_m=64 do_stages=2 "
        "ds_stages=2 late_dq=1 dq_rounds=1 dq_stages=1 dq=2 zeros_ahead=0 grid=0 group_splits=1 "
        "alternate=" +
        std::to_string(alternate) + " head_group_mb=0");
  };
  const auto params_of = [&](const char* sizes, bool alternate) {
    const Problem p = parse_problem(std::string("bwd bf16 head_dim=128 causal ") + sizes);
    EXPECT_EQ(illegal(family, config_of(alternate), p, device), "") << sizes;
    const Launch launch = family.launch(config_of(alternate), p, device);
    return test::planned_at<BwdWgmmaSm90aParams>(launch.steps[own_step(launch)], 0);
  };
  ASSERT_EQ(device.num_sms, 132);
  EXPECT_EQ(params_of("num_heads=64:8 seqlen=16384", true).order.heads_per_group, 1);
  EXPECT_EQ(params_of("num_heads=64:8 seqlen=2048", true).order.heads_per_group, 8);
  EXPECT_EQ(params_of("num_heads=4 seqlen=2048", true).order.heads_per_group, 4) << "all";
  EXPECT_EQ(params_of("num_heads=4 seqlen=40000", true).order.heads_per_group, 1);
  EXPECT_EQ(params_of("num_heads=64:8 seqlen=2048", true).from_end_every, 2);
  EXPECT_EQ(params_of("num_heads=64:8 seqlen=2048", false).from_end_every, 1);
  EXPECT_EQ(params_of("num_heads=8 seqlen=2048", false).from_end_every, 0);
  for (const char* same : {"", "causal window_left=300"}) {
    const Problem p = parse_problem(std::string("bwd bf16 num_heads=8 head_dim=128 seqlen=4096 ") +
                                    same);
    EXPECT_EQ(illegal(family, config_of(true), p, device), "") << same;
    EXPECT_NE(family.needless(config_of(true), p, device), "") << same;
  }
}

// ---- blocks of bwd_wgmma_sm90a that share the query heads of a group ----

Config best_config(const char* words) {
  const Problem p = parse_problem(std::string("bwd bf16 ") + words);
  return candidates(*find_family("bwd_wgmma_sm90a"), p, typical_device("90a")).front().config;
}

void set(Config& config, std::string_view field, int value) {
  for (auto& [name, of_field] : config.fields)
    if (name == field) of_field = value;
}

/// A block that walks over all of a group's heads takes longer than its share of the GPU.
TEST(GroupSplits, AreChosenWhereBlocksAreFewOrOneOfThemIsLong) {
  for (const char* words : {"num_heads=64:8 seqlen=1378 head_dim=128 causal",
                            "batch=3 num_heads=32:4 seqlen=1085 head_dim=128 causal",
                            "batch=8 num_heads=4:1 seqlen=458 head_dim=256 causal window_left=511",
                            "batch=4 num_heads=14:2 seqlen=1841 tokens=4000 head_dim=64 causal "
                            "lengths=packed",
                            "batch=27 num_heads=71:1 seqlen=6588 tokens=32574 head_dim=64 causal "
                            "lengths=packed"})
    EXPECT_GT(best_config(words).get("group_splits"), 1) << words;
  for (const char* words : {"batch=7 num_heads=32:8 seqlen=6879 head_dim=128 causal",
                            "batch=6 num_heads=64:8 seqlen=2381 head_dim=128 causal",
                            "batch=4 num_heads=16 seqlen=2048 head_dim=128 causal",
                            "num_heads=16 seqlen=512 head_dim=64"})
    EXPECT_EQ(best_config(words).get("group_splits"), 1) << words;
}

/// Each part of dk and dv has a place of its own, apart from the rest of the workspace. That which
/// all shares add to begins as zeros.
TEST(GroupSplits, HavePartsInTheWorkspaceAndAStepThatAddsThemUp) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem p = parse_problem("bwd bf16 batch=3 num_heads=10:2 seqlen=300:200 head_dim=64:40");
  Config config = best_config("batch=3 num_heads=10:2 seqlen=300:200 head_dim=64:40");
  set(config, "zeros_ahead", 0);
  for (const bool in_order : {false, true}) {
    set(config, "dq", in_order ? kDqInOrder : kDqAnyOrder);
    set(config, "group_splits", 1);
    const Launch whole = family.launch(config, p, device);
    set(config, "group_splits", 4);  // of 5 heads: three shares of 2, 2 and 1
    ASSERT_EQ(illegal(family, config, p, device), "");
    const Launch launch = family.launch(config, p, device);
    ASSERT_EQ(launch.steps.size(), whole.steps.size() + 1);
    const LaunchStep &own = launch.steps[own_step(launch)], &last = launch.steps.back();
    EXPECT_EQ(last.kernel, "bwd_dkv");
    EXPECT_TRUE(last.overlaps_previous);
    EXPECT_EQ(last.grid.x, 3u * 2 * 13) << "16 keys a block";
    EXPECT_EQ(own.grid.x, whole.steps[own_step(whole)].grid.x * 3);
    const auto splits = test::planned_at<GroupSplitParams>(own, sizeof(BwdWgmmaSm90aParams));
    EXPECT_EQ(splits.heads, 2);
    EXPECT_EQ(splits.count, 3);
    EXPECT_EQ(splits.parts, in_order ? 3 : 1);
    EXPECT_EQ(splits.rows, 200);
    const auto of_step = test::planned_at<GroupSplitParams>(last, sizeof(BwdStepParams));
    EXPECT_EQ(std::memcmp(&splits, &of_step, sizeof(splits)), 0);
    const std::size_t rows = 3 * 2 * 200 * (in_order ? 3 : 1);
    const std::size_t parts = scratch_aligned(rows * 64 * 4) + scratch_aligned(rows * 40 * 4);
    EXPECT_EQ(launch.workspace_bytes - whole.workspace_bytes, parts);
    EXPECT_EQ(16 * (zeros_of(launch) - zeros_of(whole)), in_order ? 0 : parts);
    if (!in_order) {
      const auto rows_step = test::planned_at<BwdStepParams>(launch.steps.front(), 0);
      const auto at = [](const void* planned) { return reinterpret_cast<std::size_t>(planned); };
      EXPECT_GE(at(splits.dk), at(rows_step.zeros_begin));
      EXPECT_LE(at(splits.dk) + parts, at(rows_step.zeros_begin) + 16 * rows_step.zeros);
    }
    for (const LaunchStep& step : launch.steps) EXPECT_EQ(test::argument_fault(step), "");
  }
}

/// Nothing sets one to zeros there, and whatever lies in its place is no gradient.
TEST(GroupSplits, HaveNoPartsThatTheStepWouldReadWhereThereAreNoQueries) {
  const char* const words = "batch=3 num_heads=10:2 seqlen=0:200 head_dim=64:40";
  Config config = best_config(words);
  set(config, "group_splits", 4), set(config, "zeros_ahead", 0);
  for (const int dq : {kDqAnyOrder, kDqInOrder}) {
    set(config, "dq", dq);
    const Launch launch = find_family("bwd_wgmma_sm90a")
                              ->launch(config, parse_problem(std::string("bwd bf16 ") + words),
                                       typical_device("90a"));
    ASSERT_EQ(launch.steps.size(), 2u) << "the kernel, and bwd_dkv";
    EXPECT_EQ(test::planned_at<GroupSplitParams>(launch.steps.back(), sizeof(BwdStepParams)).parts,
              0);
  }
}

TEST(GroupSplits, AreOfNoUseWithoutGroupsAndRefusedWithLists) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  Config config = best_config("num_heads=64:8 seqlen=1378 head_dim=128 causal");
  set(config, "group_splits", 2);
  const auto refusal = [&](const std::string& words) {
    return illegal(family, config, parse_problem("bwd bf16 head_dim=128 causal " + words), device);
  };
  EXPECT_EQ(refusal("num_heads=8:4 seqlen=1024"), "");
  EXPECT_THAT(refusal("num_heads=8 seqlen=1024"), testing::HasSubstr("one head"));
  EXPECT_THAT(refusal("num_heads=8:4 seqlen=1024 blocks=64"),
              testing::HasSubstr("lists of a mask"));
  EXPECT_THAT(refusal("num_heads=8:4 seqlen=1024 mask=\"(q + k) % 3 != 0\""),
              testing::HasSubstr("lists of a mask"));
}

TEST(ZerosAhead, AreSearchedWhereTheL2HoldsThem) {
  const Family& family = *find_family("bwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const auto waste = [&](const char* heads) {
    return family.needless(
        parse_config(zeros_ahead("32")),
        parse_problem(std::string("bwd bf16 batch=4 seqlen=4096 head_dim=128 causal ") + heads),
        device);
  };
  EXPECT_EQ(waste("num_heads=16"), "");
  EXPECT_THAT(waste("num_heads=64:8"), testing::HasSubstr("L2"));
}

/// A config that is forced, too: blocks by columns would add to other elements.
TEST(GradientsOfArrays, ThatNoQueryChoosesAreSumsOfBlocksByKeysAlone) {
  Problem p = parse_problem("bwd bf16 num_heads=4 seqlen=512 head_dim=64");
  p.score = "s + t[head] * t[k]", p.args = "float* t", p.dargs = "t";
  const auto refusal = [&](const char* split_columns) {
    const Config config = parse_config(
        std::string("bwd_wgmma_sm90a ") + split_columns +
        " block_m=64 do_stages=2 ds_stages=1 late_dq=0 dq_rounds=1 dq_stages=1 dq=0 zeros_ahead=0 "
        "grid=0 group_splits=1 alternate=0 head_group_mb=0");
    return illegal(*find_family("bwd_wgmma_sm90a"), config, p, typical_device("90a"));
  };
  EXPECT_EQ(refusal("split_columns=0"), "");
  EXPECT_THAT(refusal("split_columns=1"), testing::HasSubstr("sums of blocks by keys"));
}

}  // namespace
}  // namespace attnforge
