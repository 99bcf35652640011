// key_lists_test.cpp - masks that decide which keys a query tile walks over: sizes of the lists,
// the steps that write them, and which tiles go with which blocks.
#include "templates/parts/key_lists/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

Problem problem_of(const std::string& words) {
  return parse_problem("fwd bf16 batch=3 num_heads=8:4 seqlen=1000:2000 head_dim=128 " + words);
}

KeyLists lists_of(const std::string& words, int block_m, int block_n) {
  const Problem problem = problem_of(words);
  return key_lists(problem, shape_of(problem), block_m, block_n);
}

TEST(KeyLists, HaveRoomForEveryGroupOfEveryQueryTile) {
  const KeyLists blocks = lists_of("blocks=64:16 mask_heads=4", 128, 96);
  EXPECT_EQ(blocks.groups, 6) << "of 16 keys in a tile of 96";
  EXPECT_EQ(blocks.group_keys, 16);
  EXPECT_EQ(blocks.m_blocks, 8);
  EXPECT_EQ(blocks.groups_of_sequence, 125);
  EXPECT_EQ(blocks.capacity(), 126) << "whole tiles";
  EXPECT_EQ(blocks.lists(), 4 * 8) << "sequences share the mask";
  EXPECT_EQ(blocks.bytes(), 32 * (126 * 8 + 4));
  const KeyLists large = lists_of("blocks=128 mask_batch=3", 128, 64);
  EXPECT_EQ(large.groups, 1) << "half a block is a tile";
  EXPECT_EQ(large.lists(), 3 * 8);
  EXPECT_EQ(lists_of("causal", 128, 64).lists(), 0);
}

TEST(KeyLists, OfATextAreAsManyAsItCanTellApart) {
  const auto lists = [](const std::string& words) {
    const KeyLists found = lists_of(words, 128, 64);
    return std::vector<int>{found.batch, found.heads, found.of_text};
  };
  using testing::ElementsAre;
  EXPECT_THAT(lists("mask=\"k != q\""), ElementsAre(1, 1, 1));
  EXPECT_THAT(lists("mask=\"k != q + head\""), ElementsAre(1, 8, 1));
  EXPECT_THAT(lists("mask=\"k + batch <= q\""), ElementsAre(3, 1, 1));
  EXPECT_THAT(lists("mask=\"k != q\" lengths=used"), ElementsAre(3, 1, 1)) << "lengths differ";
  EXPECT_THAT(lists("mask=\"k <= q\" blocks=64"), ElementsAre(1, 1, 0)) << "the blocks decide";
}

TEST(KeyLists, HaveRoomForTheBitsOfATextWhereTheyFit) {
  const auto bits = [](const std::string& words) { return lists_of(words, 128, 96).bits_bytes(); };
  EXPECT_EQ(bits("mask=\"k % 3 == q % 5\""), 8 * 21 * 128 * 4 * 4) << "96 keys take 3 words of 4";
  EXPECT_EQ(bits("mask=\"k % 3 == q % 5 + head\""), 8 * 8 * 21 * 128 * 4 * 4);
  Problem large = problem_of("mask=\"k % 3 == q % 5\"");
  large.seqlen_q = large.seqlen_kv = 70000;  // of 131072 in the bucket
  EXPECT_EQ(key_lists(large, shape_of(large), 128, 96).bits_bytes(), 0);
  EXPECT_EQ(bits("mask=\"k % 3 == q % 5\" blocks=64"), 0) << "the blocks decide";
  EXPECT_EQ(bits("mask=\"k <= q\""), 0) << "it is a window";
}

TEST(KeyLists, TakeTheShareOfKeysThatBlocksAboveOneAnotherHaveTogether) {
  const Problem mask = problem_of("blocks=64 density=0.25");
  EXPECT_DOUBLE_EQ(listed_share(mask, 64), 0.25);
  EXPECT_DOUBLE_EQ(listed_share(mask, 128), 1 - 0.75 * 0.75);
  EXPECT_DOUBLE_EQ(listed_share(mask, 32), 0.25);
  EXPECT_DOUBLE_EQ(listed_share(problem_of("causal"), 128), 1.0);
}

TEST(LaunchOfMasks, WritesStatesThenListsThenTheOrder) {
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80"}) {
    const Family& family = *find_family(name);
    const DeviceFacts& device = typical_device("90a");
    const auto steps = [&](const std::string& words) {
      const Problem problem = problem_of(words);
      const Config config = candidates(family, problem, device).front().config;
      const Launch launch = family.launch(config, problem, device);
      const std::string entry = family.render(config, problem).entry;
      std::vector<std::string> names;
      for (const LaunchStep& step : launch.steps) {
        EXPECT_EQ(step.overlaps_previous, !names.empty())
            << "the first follows what it does not know";
        EXPECT_THAT(entry, testing::HasSubstr(step.kernel + "(const __grid_constant__"));
        names.push_back(step.kernel);
      }
      names.pop_back();  // the family's own
      return names;
    };
    using testing::ElementsAre;
    EXPECT_THAT(steps("blocks=64"), ElementsAre("key_lists", "tile_queue"));
    EXPECT_THAT(steps("mask=\"k != q\""), ElementsAre("mask_states", "key_lists"));
    EXPECT_THAT(steps("mask=\"k <= q\" blocks=64"), ElementsAre("key_lists", "tile_queue"));
    EXPECT_THAT(steps("score=\"s + q\""), ElementsAre());
  }
}

const char* const kOwnListsConfig =
    "fwd_wgmma_sm90a warpgroups=1 block_n=64 k_stages=2 v_stages=2 q_in_regs=1 q_stages=1 "
    "pingpong=0 grid=0 blocks_per_sm=1 swizzle=128 pack_gqa=1 head_group_mb=32 own_lists=1 "
    "num_splits=1";

TEST(MakeOwnList, LeaveNothingBeforeTheKernelAndNoWorkspace) {
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem(
      "fwd bf16 num_heads=8 seqlen=1024 head_dim=128 blocks=16 density=0.5 causal");
  const Config config = parse_config(kOwnListsConfig);
  ASSERT_EQ(illegal(family, config, problem, device), "");
  const Launch launch = family.launch(config, problem, device);
  ASSERT_EQ(launch.steps.size(), 1u);
  EXPECT_EQ(launch.steps[0].grid.x, 8u * 16);
  EXPECT_EQ(launch.workspace_bytes, 0u);
  const std::string entry = family.render(config, problem).entry;
  EXPECT_THAT(entry, testing::Not(testing::HasSubstr("key_lists(")));
  EXPECT_THAT(entry, testing::Not(testing::HasSubstr("tile_queue(")));
  // The same without: its steps are in the estimate.
  Config steps = config;
  std::ranges::find(steps.fields, "own_lists", &std::pair<std::string, int>::first)->second = 0;
  EXPECT_GT(family.launch(steps, problem, device).steps.size(), 1u);
  EXPECT_GT(family.estimate_us(steps, problem, device),
            family.estimate_us(config, problem, device) + 5);
}

TEST(MakeOwnList, AreOfBlockMasksWhoseTilesAllHaveAnSm) {
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const auto asked = [&](bool legality, const std::string& words, const std::string& from,
                         const std::string& to) {
    std::string text = kOwnListsConfig;
    if (!from.empty()) text.replace(text.find(from), from.size(), to);
    const Config config = parse_config(text);
    const Problem problem = parse_problem("fwd bf16 num_heads=8 head_dim=128 " + words);
    const std::string wrong = illegal(family, config, problem, device);
    return legality ? wrong : wrong + family.needless(config, problem, device);
  };
  const auto wrong = [&](const std::string& words, const std::string& from = "",
                         const std::string& to = "") { return asked(true, words, from, to); };
  const auto waste = [&](const std::string& words, const std::string& from = "",
                         const std::string& to = "") { return asked(false, words, from, to); };
  using testing::HasSubstr;
  EXPECT_EQ(waste("seqlen=1024 blocks=64"), "");
  EXPECT_THAT(wrong("seqlen=1024 mask=\"k != q\""), HasSubstr("masks of blocks alone"));
  EXPECT_THAT(wrong("seqlen=1024 blocks=64 lengths=used"), HasSubstr("for fixed lengths"));
  EXPECT_THAT(wrong("seqlen=1024:8192 blocks=16"), HasSubstr("512 groups of keys do not fit"));
  EXPECT_THAT(wrong("seqlen=1024 blocks=64", "grid=0", "grid=2"), HasSubstr("several query"));
  EXPECT_EQ(wrong("seqlen=2048 blocks=64"), "");
  EXPECT_THAT(waste("seqlen=2048 blocks=64"), HasSubstr("tiles that wait for others"));
  EXPECT_EQ(wrong("seqlen=1024 blocks=64", "mb=32", "mb=16"), "");
  EXPECT_THAT(waste("seqlen=1024 blocks=64", "mb=32", "mb=16"), HasSubstr("all heads"));
}

TEST(MakeOwnList, AreOfNarrowTilesInTwoRoundsWhereNeighboursSeeOtherKeys) {
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const auto first = [&](const std::string& words) {
    const Problem problem = parse_problem("fwd bf16 num_heads=8 density=0.5 " + words);
    return candidates(family, problem, device).front().config;
  };
  const Config narrow = first("seqlen=2048 head_dim=256 blocks=64");
  EXPECT_EQ(narrow.get("warpgroups"), 1);
  EXPECT_EQ(narrow.get("own_lists"), 1);
  EXPECT_EQ(narrow.get("blocks_per_sm"), 1);
  EXPECT_EQ(first("seqlen=2048 head_dim=256 blocks=128").get("warpgroups"), 2) << "one row of them";
  EXPECT_EQ(first("seqlen=4096 head_dim=256 blocks=64").get("warpgroups"), 2) << "many rounds";
  EXPECT_EQ(first("seqlen=2048 head_dim=128 blocks=64").get("blocks_per_sm"), 2) << "two fit";
}

TEST(MasksInFamilies, HaveTilesThatBlocksDivideOrThatDivideThem) {
  const DeviceFacts& device = typical_device("90a");
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80"}) {
    for (const int block : {16, 32, 64, 128}) {
      const Problem problem = problem_of("blocks=" + std::to_string(block));
      const std::vector<Candidate> configs = candidates(*find_family(name), problem, device);
      ASSERT_FALSE(configs.empty()) << name << block;
      for (const Candidate& candidate : configs) {
        const int block_n = candidate.config.get("block_n");
        EXPECT_TRUE(block % block_n == 0 || block_n % block == 0) << to_string(candidate.config);
        EXPECT_EQ(candidate.config.get("pack_gqa"), 1) << to_string(candidate.config);
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
