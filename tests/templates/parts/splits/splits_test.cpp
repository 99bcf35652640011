// splits_test.cpp - keys split among several blocks of a query tile, without a GPU: what is
// launched, what is compiled, and how many splits the model asks for.
#include "templates/host/split_counts.h"
#include "templates/parts/lengths/params.h"
#include "templates/parts/splits/params.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

const Family& mma() { return *find_family("fwd_mma_sm80"); }

Config split_config(const Problem& problem, int splits, std::string_view arch = "90a") {
  Config config = candidates(mma(), problem, typical_device(arch)).front().config;
  config.fields.back().second = splits;
  return config;
}

const char* const kDecode = "fwd bf16 batch=2 num_heads=32:8 seqlen=1:8192 head_dim=128 lse";

TEST(SplitKeys, OfOneSplitHaveTheKernelWithoutAnyWordOfThem) {
  const Problem problem = parse_problem(kDecode);
  const Source source = mma().render(split_config(problem, 1), problem);
  const std::string lines = source.entry.substr(
      source.entry.find('\n'));  // after the config's text
  EXPECT_THAT(lines, testing::Not(testing::HasSubstr("plit")));
  EXPECT_THAT(source.text, testing::Not(testing::HasSubstr("PartialParams")));
  const Launch launch = mma().launch(split_config(problem, 1), problem, typical_device("90a"));
  ASSERT_EQ(launch.steps.size(), 1u);
  EXPECT_EQ(launch.steps[0].grid.y, 1u);
  EXPECT_EQ(launch.workspace_bytes, 0u);
}

TEST(SplitKeys, OfAnyNumberAreTheSameCode) {
  const Problem problem = parse_problem(kDecode);
  EXPECT_EQ(digest(mma().render(split_config(problem, 2), problem)),
            digest(mma().render(split_config(problem, 33), problem)));
}

TEST(SplitKeys, AreASecondDimensionOfTheGridAndAStepThatMerges) {
  for (const char* text :
       {kDecode, "fwd fp16 batch=4 num_heads=8:2 seqlen=3:5000 head_dim=64 lengths=used causal",
        "fwd bf16 batch=2 num_heads=8 seqlen=2:5000 head_dim=128 lengths=packed",
        "fwd bf16 batch=1 num_heads=8 seqlen=16:4096 head_dim=128 blocks=64 rope=half"}) {
    const Problem problem = parse_problem(text);
    for (const char* arch : {"80", "90a"}) {
      SCOPED_TRACE(fmt::format("{} on {}", text, arch));
      const Config one = split_config(problem, 1, arch), seven = split_config(problem, 7, arch);
      const Launch plain = mma().launch(one, problem, typical_device(arch)),
                   split = mma().launch(seven, problem, typical_device(arch));
      ASSERT_EQ(split.steps.size(), plain.steps.size() + 1);
      EXPECT_EQ(own_step(split), own_step(plain));
      const LaunchStep& kernel = split.steps[own_step(split)];
      EXPECT_EQ(kernel.grid.x * kernel.grid.z, plain.steps[own_step(plain)].grid.x);
      EXPECT_EQ(kernel.grid.y, 7u);
      EXPECT_EQ(split.steps.back().kernel, "combine_splits");
      EXPECT_FALSE(split.steps.front().overlaps_previous);
      EXPECT_EQ(split.steps.back().overlaps_previous, std::string(arch) == "90a");
      const std::string entry = mma().render(seven, problem).entry;
      EXPECT_THAT(entry, testing::HasSubstr("combine_splits("));
      EXPECT_THAT(entry, testing::HasSubstr("using Walk = SplitWalk<"));
    }
  }
}

TEST(SplitKeys, HaveRoomForEachPartOfEachRowAndOverlapNoList) {
  for (const int batch : {4, 512}) {
    const Problem problem = parse_problem(fmt::format(
        "fwd bf16 batch={} num_heads=8:2 seqlen=5:4096 head_dim=128:64 lengths=used", batch));
    const Config config = split_config(problem, 9);
    const Launch launch = mma().launch(config, problem, typical_device("90a"));
    const std::size_t rows = static_cast<std::size_t>(batch) * 8 * 5,
                      o_bytes = rows * 9 * 64 * sizeof(float);
    EXPECT_EQ(partial_bytes(problem, 9), rows * 9 * (64 + 1) * sizeof(float));
    const std::vector<std::byte>& params = launch.steps.back().params;
    PartialParams partials;  // after FwdParams
    std::memcpy(&partials, params.data() + sizeof(StepParams), sizeof(partials));
    const auto o = reinterpret_cast<std::size_t>(partials.o),
               lse = reinterpret_cast<std::size_t>(partials.lse);
    // Blocks read the lengths of a few sequences, and take those of many from a list.
    EXPECT_EQ(launch.steps.front().kernel == "tile_queue", batch == 512);
    if (batch == 512) {
      EXPECT_GE(o, sizeof(TileQueue) + 512 * sizeof(QueuedTile)) << "after the list of query tiles";
    }
    EXPECT_GE(lse, o + o_bytes);
    EXPECT_EQ(o % 16, 0u);
    EXPECT_GE(launch.workspace_bytes, lse + rows * 9 * sizeof(float));
    EXPECT_EQ(partials.splits, 9);
    EXPECT_EQ(partials.rows_of_head, 5);
    EXPECT_EQ(launch.steps.back().grid.x * MergeShape::kWarps,
              rows * static_cast<unsigned>(partials.row_warps));
  }
}

/// The Splits of a kernel's entry.
std::string splits_of(const char* text, int splits) {
  const Problem problem = parse_problem(text);
  Config config = candidates(mma(), problem, typical_device("90a")).front().config;
  config.fields.back().second = splits;
  const std::string entry = mma().render(config, problem).entry;
  const std::string kBegin = "using Splits = ";
  const std::size_t begin = entry.find(kBegin) + kBegin.size();
  return entry.substr(begin, entry.find_first_of("<;", begin) - begin);
}

TEST(SplitKeys, FollowTheLengthsOfSequencesWithOneTileAHead) {
  const std::string sizes = "fwd bf16 batch=64 num_heads=32:8 seqlen=1:8192 head_dim=128 ";
  EXPECT_EQ(splits_of((sizes + "lengths=used").c_str(), 2), "LengthSplits");
  EXPECT_EQ(splits_of((sizes + "lengths=used page_size=16").c_str(), 2), "LengthSplits");
  EXPECT_EQ(splits_of(sizes.c_str(), 2), "GridSplits") << "the host knows that all are equal";
  EXPECT_EQ(splits_of((sizes + "lengths=used batch_invariant").c_str(), 2), "EvenSplits")
      << "by the sequence's own length";
  EXPECT_EQ(splits_of((sizes + "lengths=packed").c_str(), 2), "EvenSplits");
  EXPECT_EQ(splits_of("fwd bf16 batch=2 num_heads=8 seqlen=512:8192 head_dim=128 lengths=used", 2),
            "EvenSplits")
      << "several tiles a head";
}

TEST(SplitKeys, OfEqualSequencesFillTheLastRoundOfBlocks) {
  EXPECT_EQ(splits_of_equal(512, 4, 1056), 2) << "one round, about full";
  EXPECT_EQ(splits_of_equal(1024, 4, 1056), 1) << "it is already";
  EXPECT_EQ(splits_of_equal(1024, 4, 792), 3) << "four rounds, about full, not two of which one is";
  EXPECT_EQ(splits_of_equal(1024, 2, 792), 2) << "no more than are asked for";
  EXPECT_EQ(splits_of_equal(64, 8, 1056), 8) << "as far as there is room";
  EXPECT_EQ(splits_of_equal(0, 4, 1056), 4);
}

/// A config asks for 4 blocks on an SM; of fewer bits 8 find registers and memory there.
TEST(SplitKeys, OfFewerBitsCountTheBlocksThatAnSmHolds) {
  const char* const kConfig =
      "block_m={} num_warps=2 block_n=32 step_n=16 stages=2 q_in_regs=0 "
      "blocks_per_sm=4 pack_gqa=4 head_group_mb=0 head_dim_warps=1 "
      "pad_head_dim=0 num_splits={}";
  const std::string sizes = " num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used batch=";
  const auto launch_of = [&](const std::string& format, int batch, int block_m, int splits) {
    return mma().launch(
        parse_config("fwd_mma_sm80 " + fmt::format(fmt::runtime(kConfig), block_m, splits)),
        parse_problem(format + sizes + std::to_string(batch)), typical_device("90a"));
  };
  const auto at_once = [&](const std::string& format, int block_m) {
    const Launch launch = launch_of(format, 64, block_m, 4);
    const LaunchStep& step = launch.steps[own_step(launch)];
    const std::size_t begin = test::parts_of<ScratchArgument>(step).front().first;
    return test::planned_at<PartialParams>(step, begin).at_once;
  };
  EXPECT_EQ(at_once("fwd bf16 k=int8 v=int8 kv_scale=token", 8), 2 * 64) << "two of each sequence";
  EXPECT_EQ(at_once("fwd bf16", 16), 4 * typical_device("90a").num_sms / 8) << "as it asks for";
  // 768 query tiles: no step puts them in order where SMs hold all of them.
  const auto steps = [&](const std::string& format, int block_m) {
    return launch_of(format, 96, block_m, 1).steps.size();
  };
  EXPECT_EQ(steps("fwd bf16 k=int8 v=int8 kv_scale=token", 8), 1u);
  EXPECT_EQ(steps("fwd bf16", 16), 2u);
}

TEST(SplitKeys, AreTriedOfAFullGridWhereSequencesMayBeUnequal) {
  const auto values = [](const std::string& words) {
    const Problem problem = parse_problem("fwd bf16 num_heads=32:8 seqlen=1:8192 head_dim=128 " +
                                          words);
    return splits_axis(problem, typical_device("90a")).values;
  };
  EXPECT_EQ(values("batch=64"), (std::vector<int>{1, 2, 3, 4})) << "for a last wave that is full";
  EXPECT_EQ(values("batch=512"), std::vector<int>{1});
  EXPECT_EQ(values("batch=64 lengths=used"), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(values("batch=4096 lengths=used"), std::vector<int>{1}) << "many rounds end evenly";
}

TEST(SplitKeys, OfASmallerBatchAreAsManyBlocksAsThoseOfItsBucket) {
  const auto splits = [](const char* words, int measured) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 num_heads=32:8 head_dim=128 {}", words));
    return splits_of_launch(
        problem,
        {.block_m = 64, .block_n = 64, .pack_gqa = 4, .blocks_per_sm = 2, .num_splits = measured},
        typical_device("90a"));
  };
  EXPECT_EQ(splits("batch=6 seqlen=1:8192", 5), 5) << "the bucket itself";
  EXPECT_EQ(splits("batch=5 seqlen=1:8192", 5), 6);
  EXPECT_EQ(splits("batch=5 seqlen=1:8192", 1), 1) << "another kernel";
  EXPECT_EQ(splits("batch=5 seqlen=1:8192 batch_invariant", 5), 5);
  EXPECT_EQ(splits("batch=5 seqlen=1:8192 lengths=packed", 5), 5) << "its rows are tokens";
  EXPECT_EQ(splits("batch=9 seqlen=1:192", 2), 2) << "a tile of keys for each";
  EXPECT_EQ(splits("batch=9 seqlen=1:100", 3), 3);
  EXPECT_EQ(splits("batch=17 seqlen=1:8192", 2), 2) << "the GPU is full";
  for (int batch = 1; batch <= 200; ++batch) {
    const std::string words = fmt::format("batch={} seqlen=1:60000", batch);
    EXPECT_LE(splits(words.c_str(), 3) * batch, 3 * bucket_batch(batch));
  }
}

TEST(SplitKeys, OfManyRowsFillWavesWhereTheBucketHasMoreTiles) {
  // 71 heads of 5 new tokens are 3 tiles, of the 8 of their bucket 5.
  const auto splits = [](const char* words, int measured) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 num_heads=71:1 head_dim=64 causal {}", words));
    return splits_of_launch(
        problem, {.block_m = 128, .block_n = 160, .pack_gqa = 71, .num_splits = measured},
        typical_device("90a"));
  };
  EXPECT_EQ(splits("batch=12 seqlen=8:7769", 2), 2) << "the bucket itself";
  EXPECT_EQ(splits("batch=11 seqlen=5:7769", 2), 4) << "132 blocks of as many SMs";
  EXPECT_EQ(splits("batch=11 seqlen=5:7769", 1), 1) << "another kernel";
  EXPECT_EQ(splits("batch=11 seqlen=5:7769 lengths=packed", 2), 2);
  EXPECT_EQ(splits("batch=11 seqlen=5:7769", 5), 8) << "two waves that are full";
  EXPECT_EQ(splits("batch=11 seqlen=5:500", 2), 3) << "a tile of keys for each";
  EXPECT_LE(splits("batch=3 seqlen=5:7769 window_left=300", 2), 3) << "300 to 305 keys are seen";
  for (int batch = 1; batch <= 64; ++batch) {
    for (int queries = 2; queries <= 64; ++queries) {
      const std::string words = fmt::format("batch={} seqlen={}:60000", batch, queries);
      const int blocks = splits(words.c_str(), 2) * batch * ((queries * 71 + 127) / 128);
      EXPECT_LE(blocks, std::max(2 * 132, 2 * batch * ((queries * 71 + 127) / 128))) << words;
    }
  }
}

TEST(SplitKeys, TakeMemoryThatDecidesHowManyBlocksAnSmHas) {
  // Two blocks of 96 keys fit an SM, but not with the lengths of all sequences beside each.
  const Problem problem = parse_problem(
      "fwd bf16 batch=54 num_heads=32:8 seqlen=1:8530 head_dim=128 lengths=used page_size=64");
  for (const Candidate& each :
       candidates(*find_family("fwd_wgmma_sm90a"), problem, typical_device("90a"))) {
    if (each.config.get("num_splits") == 1 || each.config.get("blocks_per_sm") == 1) continue;
    EXPECT_LT(each.config.get("block_n"), 96) << to_string(each.config);
  }
}

/// A config of fwd_wgmma_sm90a whose blocks have shares of the keys, or none.
std::vector<Config> shares_of(const Problem& problem) {
  std::vector<Config> found;
  for (const Candidate& each :
       candidates(*find_family("fwd_wgmma_sm90a"), problem, typical_device("90a"))) {
    if (each.config.get("grid") == 3) found.push_back(each.config);
  }
  return found;
}

TEST(SharedKeys, AreOneBlockForEachPlaceAndAStepThatMerges) {
  const Family& family = *find_family("fwd_wgmma_sm90a");
  std::size_t room = 0;
  for (const int batch : {1, 16, 17, 141, 190}) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 batch={} num_heads=64:8 seqlen=2:8854 head_dim=128 causal "
                    "lengths=used page_size=64",
                    batch));
    const std::vector<Config> configs = shares_of(problem);
    ASSERT_FALSE(configs.empty());
    Config config = configs.front();
    const Launch launch = family.launch(config, problem, typical_device("90a"));
    ASSERT_EQ(launch.steps.size(), 2u);
    EXPECT_EQ(launch.steps[0].grid.x, 132u * static_cast<unsigned>(config.get("blocks_per_sm")));
    EXPECT_EQ(launch.steps[0].grid.y, 1u);
    EXPECT_EQ(launch.steps[1].kernel, "combine_splits");
    // A result for each query tile, and one more for each block, of 16 rows.
    const std::size_t results = static_cast<std::size_t>(batch) * 8 + launch.steps[0].grid.x;
    EXPECT_GE(launch.workspace_bytes, results * 16 * (128 + 1) * sizeof(float));
    EXPECT_LE(launch.workspace_bytes, results * 16 * (128 + 1) * sizeof(float) + 4096);
    if (config.get("blocks_per_sm") == 1) {
      EXPECT_GE(launch.workspace_bytes, room) << "more of a larger batch";
      room = launch.workspace_bytes;
    }
    config.fields.back().second = 2;
    EXPECT_THAT(illegal(family, config, problem, typical_device("90a")),
                testing::HasSubstr("do not split keys"));
  }
}

TEST(SharedKeys, AreOfSequencesWithOneTileAHeadThatAreNotPackedAndOfAnyBatch) {
  const auto some = [](const std::string& words) {
    return !shares_of(parse_problem("fwd bf16 num_heads=32:8 head_dim=128 " + words)).empty();
  };
  EXPECT_TRUE(some("batch=17 seqlen=1:8192"));
  EXPECT_TRUE(some("batch=17 seqlen=8:8192 lengths=used causal"));
  EXPECT_FALSE(some("batch=17 seqlen=1:8192 lengths=used batch_invariant"));
  EXPECT_FALSE(some("batch=17 seqlen=1:8192 lengths=packed page_size=16"));
  EXPECT_FALSE(some("batch=300 seqlen=1:8192 lengths=used"));
  EXPECT_FALSE(some("batch=200 seqlen=1:8192")) << "so many rounds";
  EXPECT_FALSE(some("batch=17 seqlen=512:8192"));
  EXPECT_FALSE(some("batch=17 seqlen=1:8192 blocks=64"));
  EXPECT_FALSE(some("batch=1 seqlen=1:512")) << "few key tiles";
}

TEST(SharedKeys, AreReadByTeamsOfHeadsWhoseRowsHavePiecesOfMemoryInCommon) {
  const DeviceFacts device = typical_device("90a");
  ASSERT_EQ(device.num_sms, 132);
  const auto team = [&](int heads, int head_dim, const char* more = "") {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 batch=64 num_heads={}:{} seqlen=1:6000 head_dim={} {}", 4 * heads,
                    heads, head_dim, more));
    return team_of_shares(problem, {.pack_gqa = 4, .shares = true}, device);
  };
  EXPECT_EQ(team(8, 128), 4);
  EXPECT_EQ(team(9, 128), 3);
  EXPECT_EQ(team(5, 128), 1) << "two SMs would be idle for nothing";
  EXPECT_EQ(team(8, 80), 8);
  EXPECT_EQ(team(5, 80), 5);
  EXPECT_EQ(team(10, 72), 10);
  EXPECT_EQ(team(32, 80), 16);
  EXPECT_EQ(team(15, 80), 5) << "15 would leave 12 SMs idle";
  EXPECT_EQ(team(5, 96), 1) << "three pieces each";
  EXPECT_EQ(team(5, 96, "k=int8 v=int8 kv_scale=token"), 5) << "one and a half";
  EXPECT_EQ(team(1, 72), 1);
}

TEST(SplitKeys, OfASequenceAreTriedFromWhatKeepsAboutHalfOfTheSmsBusy) {
  const Problem problem = parse_problem("fwd bf16 num_heads=16:1 seqlen=1:65536 head_dim=128");
  const std::vector<int> values = splits_axis(problem, typical_device("90a")).values;
  EXPECT_THAT(values, testing::IsSupersetOf({64, 128, 132}));
  EXPECT_THAT(values, testing::Not(testing::Contains(32)));
}

TEST(SplitKeys, OfEveryBatchAreEnoughForASequenceAloneUnlessMergingCostsTooMuch) {
  const auto least = [](const std::string& words) {
    const Problem problem = bucket(
        parse_problem("fwd bf16 batch=64 seqlen=1:8192 head_dim=128 " + words));
    const std::vector<int> values = splits_axis(problem, typical_device("90a")).values;
    return *std::min_element(values.begin() + 1, values.end());
  };
  EXPECT_EQ(least("num_heads=32:8 batch_invariant"), 8) << "half of 132 SMs for one sequence";
  EXPECT_EQ(least("num_heads=16:1 batch_invariant"), 16) << "64 would merge a quarter of the bytes";
}

TEST(SplitKeys, TakeNoSharedMemoryForLengthsThatTheHostKnows) {
  const DeviceFacts& device = typical_device("86");
  const auto most_smem_bytes = [&](const std::string& words) {
    const Problem problem = parse_problem(
        "fwd bf16 batch=2 num_heads=8 seqlen=1:8192 head_dim=256" + words);
    int most = 0;
    for (const Candidate& each : candidates(mma(), problem, device)) {
      if (each.config.get("num_splits") > 1)
        most = std::max(most, mma().launch(each.config, problem, device).steps[0].smem_bytes);
    }
    return most;
  };
  const int block = device.arch.smem_per_block_bytes,
            lengths = kMostSharingSequences * static_cast<int>(sizeof(int));
  EXPECT_GT(most_smem_bytes(""), block - lengths);
  EXPECT_LE(most_smem_bytes(" lengths=used"), block - lengths) << "each block has those of all";
}

TEST(SplitKeys, OfManyUnequalRowsAreMergedByFewerWarpsThanLongOnesWant) {
  const auto row_warps = [](int batch, const char* lengths) {
    const Problem problem = parse_problem(fmt::format(
        "fwd bf16 batch={} num_heads=32:8 seqlen=1:8192 head_dim=128{}", batch, lengths));
    const Config config = split_config(problem, 4);
    const Launch launch = mma().launch(config, problem, typical_device("90a"));
    PartialParams partials;
    std::memcpy(&partials, launch.steps.back().params.data() + sizeof(StepParams),
                sizeof(partials));
    return partials.row_warps;
  };
  EXPECT_EQ(row_warps(8, ""), 1);
  EXPECT_EQ(row_warps(8, " lengths=used"), 4) << "a long sequence may have 16 splits";
  EXPECT_EQ(row_warps(32, " lengths=used"), 2) << "256 blocks that have 4 rows each";
  EXPECT_EQ(row_warps(64, " lengths=used"), 1) << "256 blocks that have 8 rows each";
}

TEST(SplitKeys, AreMergedByBlocksThatDoNotCrowdOnTheFirstSmsThatAreFree) {
  DeviceFacts device = typical_device("90a");
  const auto smem_of_merge = [&](const char* family, const char* heads) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 batch=64 num_heads={} seqlen=1:4096 head_dim=128", heads));
    const std::vector<Candidate> all = candidates(*find_family(family), problem, device);
    const auto splits = std::ranges::find_if(
        all, [](const Candidate& c) { return c.config.get("num_splits") == 2; });
    return find_family(family)->launch(splits->config, problem, device).steps.back().smem_bytes;
  };
  const int own = MergeShape::smem_bytes(128), of_sm = device.arch.smem_per_sm_bytes;
  EXPECT_EQ(smem_of_merge("fwd_mma_sm80", "16:1"), own) << "they start beside the kernel's";
  const int spread = smem_of_merge("fwd_wgmma_sm90a", "16:1");
  EXPECT_GT(3 * spread, of_sm);
  EXPECT_LE(2 * (spread + 2048), of_sm) << "two on an SM, with what they have beside it";
  EXPECT_EQ(smem_of_merge("fwd_wgmma_sm90a", "64:2"), own) << "512 blocks want all places";
  device.arch.smem_per_block_bytes = 100000;
  EXPECT_EQ(smem_of_merge("fwd_wgmma_sm90a", "16:1"), 100000);
}

TEST(SplitKeys, OfPackedSequencesNumberTheRowsOfAllTokens) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=4 num_heads=8 seqlen=10:4096 tokens=20:9000 head_dim=64 lengths=packed");
  EXPECT_EQ(partial_bytes(problem, 2), 20 * 8 * 2 * (64 + 1) * 4);
}

TEST(MergeShape, HasAWarpForAboutFourSplits) {
  for (int splits = 1; splits <= kMostSplits; ++splits) {
    const MergeShape shape = MergeShape::of(splits);
    EXPECT_EQ(shape.rows() * shape.warps, MergeShape::kWarps);
    EXPECT_TRUE(shape.warps == MergeShape::kWarps || splits <= 4 * shape.warps) << splits;
  }
}

TEST(SplitKeys, AreNeedlessWhereTheyCannotPay) {
  const DeviceFacts& device = typical_device("90a");
  const auto reason = [&](const char* text, int splits) {
    const Problem problem = parse_problem(text);
    Config config = candidates(mma(), problem, device).front().config;
    config.fields.back().second = splits;
    EXPECT_EQ(illegal(mma(), config, problem, device), "") << text;
    return mma().needless(config, problem, device);
  };
  EXPECT_THAT(reason("fwd bf16 batch=1 num_heads=8:1 seqlen=1:128 head_dim=128", 64),
              testing::HasSubstr("key tiles"));
  EXPECT_THAT(reason("fwd bf16 batch=256 num_heads=32:8 seqlen=1:8192 head_dim=128", 2),
              testing::HasSubstr("without splits"));
  EXPECT_THAT(reason("fwd bf16 batch=8 num_heads=32:8 seqlen=1:65536 head_dim=128", 128),
              testing::HasSubstr("twice"));
  EXPECT_THAT(reason("fwd bf16 batch=16 num_heads=64 seqlen=64:65536 head_dim=256", 256),
              testing::HasSubstr("1 GB"));
}

TEST(SplitKeys, WhosePartialResultsTheGpuCannotHoldAreIllegal) {
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=64 seqlen=65536 head_dim=256");
  const Config config = split_config(problem, 256);
  DeviceFacts device = typical_device("90a");
  EXPECT_THAT(illegal(mma(), config, problem, device),
              testing::HasSubstr("1028 GB, more than the GPU's memory"));
  device.memory_bytes = std::int64_t{1100} << 30;
  EXPECT_EQ(illegal(mma(), config, problem, device), "");
}

TEST(SplitKeys, OfHeadsWithOneQueryTileHaveHeadsAndSequencesAsDimensions) {
  const auto grid = [](const std::string& text) {
    const Problem problem = parse_problem(text);
    const Config config = split_config(problem, 7);
    const Launch launch = mma().launch(config, problem, typical_device("90a"));
    const LaunchStep& step = launch.steps[own_step(launch)];
    // The plan of a bucket's other problem takes the code, too.
    EXPECT_EQ(mma().render(config, bucket(problem)).text.find("GridOrder<") != std::string::npos,
              step.grid.z > 1)
        << text;
    return std::array{step.grid.x, step.grid.y, step.grid.z};
  };
  const std::string sizes = "fwd bf16 batch=4 num_heads=32:8 head_dim=128 lse seqlen=";
  EXPECT_EQ(grid(sizes + "1:8192"), (std::array{8u, 7u, 4u}));
  EXPECT_EQ(grid(sizes + "1:5000 rope=half"), (std::array{8u, 7u, 4u}));
  for (const char* rest :
       {"1:8192 batch_invariant", "1:8192 lengths=used", "300:8192", "1:8192 blocks=64"}) {
    EXPECT_EQ(grid(sizes + rest)[2], 1u) << rest;
  }
  EXPECT_EQ(grid("fwd bf16 batch=60000 num_heads=1 head_dim=8 seqlen=1:512")[2], 1u);
}

TEST(SplitKeys, AreSlicedByTheInverseOfTheirNumberAsByTheNumber) {
  for (int splits = 2; splits <= kMostSplits; ++splits) {
    for (const int tiles : {0, 1, splits - 1, splits, splits + 1, 4095, (1 << 24) / splits * splits,
                            (1 << 24) / splits * splits - 1})
      ASSERT_EQ(std::uint64_t{splits_inverse_of(splits)} * static_cast<unsigned>(tiles) >> 32,
                static_cast<unsigned>(tiles / splits))
          << tiles << " / " << splits;
  }
}

TEST(SplitKeys, OfTheHopperFamilyAreThoseOfBlocksWithOneQueryTile) {
  const Family& wgmma = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem(kDecode);
  std::size_t split = 0;
  for (const Candidate& each : candidates(wgmma, problem, device)) {
    const int splits = each.config.get("num_splits");
    if (splits == 1) continue;
    ++split;
    EXPECT_EQ(each.config.get("grid"), 0) << to_string(each.config);
    const Launch launch = wgmma.launch(each.config, problem, device);
    ASSERT_EQ(launch.steps.size(), 2u);
    EXPECT_EQ(launch.steps[0].grid.x, 2u * 8u);
    EXPECT_EQ(launch.steps[0].grid.y, static_cast<unsigned>(splits));
    EXPECT_EQ(launch.steps[1].kernel, "combine_splits");
  }
  EXPECT_GT(split, 20u);
  const Problem masked = parse_problem(
      "fwd bf16 batch=1 num_heads=8 seqlen=1:8192 head_dim=128 blocks=64");
  for (const Candidate& each : candidates(wgmma, masked, device))
    EXPECT_EQ(each.config.get("num_splits"), 1) << "lists are not split there";
}

// ---- What the model asks for, of the shapes that serving is measured by ----

struct Serving {
  const char* sizes;
  bool full;  // query tiles fill an H200 as they are
};
void PrintTo(const Serving& s, std::ostream* out) { *out << s.sizes; }
class ServingShapes : public testing::TestWithParam<Serving> {};

TEST_P(ServingShapes, AreSplitAsFarAsTheGpuHasRoom) {
  const Problem problem = parse_problem(fmt::format("fwd bf16 {} head_dim=128", GetParam().sizes));
  const DeviceFacts& device = typical_device("90a");
  const Candidate first = candidates(mma(), problem, device).front();
  const Launch launch = mma().launch(first.config, problem, device);
  const Dim3 grid = launch.steps[own_step(launch)].grid;
  SCOPED_TRACE(to_string(first.config));
  EXPECT_EQ(first.config.get("pack_gqa"), problem.num_heads_q / problem.num_heads_kv);
  const unsigned query_tiles = grid.x * grid.z;
  EXPECT_EQ(query_tiles, problem.batch * problem.num_heads_kv)
      << "all heads of a query in one tile";
  if (GetParam().full) {
    EXPECT_EQ(grid.y, 1u);
  } else {
    const int tiles = static_cast<int>(problem.seqlen_kv) / first.config.get("block_n");
    EXPECT_GE(query_tiles * grid.y,
              std::min<unsigned>(device.num_sms * 9 / 10, query_tiles * tiles / 2));
  }
}

constexpr Serving kServing[] = {
    {"batch=1 num_heads=32:8 seqlen=1:2048", false},
    {"batch=1 num_heads=32:8 seqlen=1:8192", false},
    {"batch=1 num_heads=32:8 seqlen=1:65536", false},
    {"batch=8 num_heads=32:8 seqlen=1:8192", false},
    {"batch=64 num_heads=32:8 seqlen=1:8192", true},
    {"batch=128 num_heads=32:8 seqlen=1:4096", true},
    {"batch=1 num_heads=16:1 seqlen=1:2048", false},
    {"batch=1 num_heads=16:1 seqlen=1:8192", false},
    {"batch=1 num_heads=16:1 seqlen=1:65536", false},
    {"batch=8 num_heads=16:1 seqlen=1:8192", false},
    {"batch=64 num_heads=16:1 seqlen=1:8192", false},
    {"batch=128 num_heads=16:1 seqlen=1:4096", false},
};
INSTANTIATE_TEST_SUITE_P(H200, ServingShapes, testing::ValuesIn(kServing));

TEST(ServingShapes, AreServedBySplitKeysWhereNothingWasMeasured) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128");
  const Candidate untuned_one = untuned(registry(), problem, typical_device("90a"));
  const bool shares = untuned_one.config.family == "fwd_wgmma_sm90a" &&
                      untuned_one.config.get("grid") == 3;
  EXPECT_TRUE(shares || untuned_one.config.get("num_splits") > 1) << to_string(untuned_one.config);
}

TEST(ServingShapes, HaveTilesOfSixteenAndOfThirtyTwoRowsToTry) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=1 num_heads=16:1 seqlen=1:8192 head_dim=128");
  for (const char* arch : {"80", "86", "89", "90a"}) {
    const std::vector<Candidate> all = candidates(mma(), problem, typical_device(arch));
    for (const int rows : {16, 32})
      EXPECT_TRUE(std::ranges::any_of(all,
                                      [&](const Candidate& c) {
                                        return c.config.get("block_m") == rows &&
                                               c.config.get("pack_gqa") == 16 &&
                                               c.config.get("num_splits") > 1;
                                      }))
          << rows << " on sm_" << arch;
  }
}

TEST(ServingShapes, HaveConfigsWhateverTheNumberOfHeadsPerKeyHead) {
  for (const char* arch : {"80", "86"}) {  // much shared memory, and the least
    for (int group = 1; group <= 71; ++group) {
      const Problem problem = parse_problem(
          fmt::format("fwd bf16 num_heads={}:2 seqlen=3:500 head_dim=72 causal", 2 * group));
      EXPECT_FALSE(candidates(mma(), problem, typical_device(arch)).empty())
          << group << " on sm_" << arch;
    }
  }
}

TEST(Prefill, HasNoSplitsToTryWhereItsTilesFillTheGpu) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=4 num_heads=32:8 seqlen=4096 head_dim=128 causal");
  for (const Axis& axis : mma().axes(problem, typical_device("90a"))) {
    if (axis.name == "num_splits") {
      EXPECT_EQ(axis.values, std::vector<int>{1});
    }
  }
}

}  // namespace
}  // namespace attnforge
