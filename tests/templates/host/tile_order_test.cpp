// tile_order_test.cpp - the order in which blocks take query tiles, as the host lays it down.
#include "templates/host/tile_order.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

// 64 heads with 2 MB of K and V each.
Problem of_64_heads() {
  return parse_problem("fwd bf16 batch=4 num_heads=16 seqlen=4096 head_dim=128 causal");
}

int heads_per_group(const Problem& problem, int head_group_mb) {
  return tile_order(problem, 128, 1, head_group_mb, true).heads_per_group;
}

int heads_of_last_group(const TileOrder& order) {
  return (order.heads - 1) % order.heads_per_group + 1;
}

TEST(TileOrder, NoSmallGroupIsLeftForTheEnd) {
  for (const int mb : {0, 2, 5, 14, 15, 30, 60, 100, 128, 4096}) {
    const TileOrder order = tile_order(of_64_heads(), 128, 1, mb, true);
    EXPECT_GT(2 * heads_of_last_group(order), order.heads_per_group) << mb << " MB";
  }
  EXPECT_EQ(heads_per_group(of_64_heads(), 15), 8);  // 7 would leave one over
}

TEST(TileOrder, GroupsHoldAsManyHeadsAsAsked) {
  EXPECT_EQ(heads_per_group(of_64_heads(), 0), 1);
  EXPECT_EQ(heads_per_group(of_64_heads(), 32), 16);
  EXPECT_EQ(heads_per_group(of_64_heads(), 4096), 64);
}

TEST(TileOrder, EmptyProblemsDivideByNothing) {
  const TileOrder order = tile_order(
      parse_problem("fwd bf16 batch=0 num_heads=4 seqlen=0 head_dim=64"), 128, 1, 16, false);
  EXPECT_EQ(order.heads, 0);
  EXPECT_EQ(order.heads_per_group, 1);
}

TEST(TileOrder, SmallLastGroupsAreSeenToLeaveTheGpuIdle) {
  constexpr double kPlaces = 264;
  const auto idle = [&](int mb) {
    return idle_factor(tile_order(of_64_heads(), 128, 1, mb, true), kPlaces);
  };
  EXPECT_GT(idle(0), idle(30));
  EXPECT_GE(idle(30), idle(4096));
  EXPECT_GT(idle(4096), 1.0);
}

TEST(SpreadOfRows, IsWhatLengthsOfABucketLeaveEmptyInTheirLastTileAndRound) {
  const auto spread = [](int batch, int queries, int block_m, int pack, double places = 1) {
    return spread_of_rows(parse_problem(fmt::format("fwd bf16 batch={} num_heads=32:2 head_dim=64 "
                                                    "seqlen={}",
                                                    batch, queries)),
                          block_m, pack, places);
  };
  EXPECT_NEAR(spread(2, 256, 128, 1), 1.07, 0.01) << "225 queries take 256 rows";
  EXPECT_GT(spread(2, 160, 192, 1), spread(2, 160, 192, 16)) << "heads fill each other's tiles";
  EXPECT_EQ(spread(2, 128, 128, 1), 1);
  EXPECT_EQ(spread(2, 300, 128, 1), 1) << "no bucket";
  // 7 or 8 sequences of 129 to 160 queries on 132 SMs: tiles of 192 rows are always two rounds.
  EXPECT_GT(spread(8, 160, 192, 16, 132), spread(8, 160, 128, 16, 132));
}

TEST(SpreadOfRows, CountsInTheFinalOfEveryFamilyThatHasTilesOfQueries) {
  // 17 to 24 images of 225 to 256 queries: the last round of 3 x 132 blocks is full for 24 of 256.
  const Problem problem = parse_problem("fwd bf16 batch=24 num_heads=16 seqlen=256 head_dim=72");
  for (const char* name : {"fwd_mma_sm80", "fwd_wgmma_sm90a"}) {
    const Family& family = *find_family(name);
    const std::vector<Candidate> all = candidates(family, problem, typical_device("90a"));
    ASSERT_FALSE(all.empty());
    EXPECT_TRUE(std::ranges::all_of(all, [](const Candidate& c) { return c.spread > 1; })) << name;
  }
}

TEST(HeadGroups, OfManyKvHeadsArePreferredToAllAtOnceWhereTheMemoryIsSlow) {
  // Measured on an H100: all heads at once 3.36 ms, in groups that the L2 holds 2.46.
  DeviceFacts h100 = typical_device("90a");
  h100.memory_clock_mhz = 2619;
  h100.memory_bus_bits = 5120;
  h100.l2_bytes = 50 << 20;
  const auto group_mb = [&](const char* heads) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 batch=17 num_heads={} seqlen=3317 tokens=20133 head_dim=192:128 "
                    "lengths=packed causal",
                    heads));
    return untuned(registry(), bucket(problem), h100).config.get("head_group_mb");
  };
  EXPECT_LE(group_mb("128"), 25);
  EXPECT_GT(group_mb("128:8"), 25) << "16 heads read the same keys";
}

}  // namespace
}  // namespace attnforge
