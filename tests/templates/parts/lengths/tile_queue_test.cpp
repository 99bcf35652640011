// tile_queue_test.cpp - the launch of a problem whose lengths only the GPU knows, without a GPU.
#include "templates/host/tile_order.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "generator/shape.h"
#include "reference/sequences.h"
#include "templates/host/argument.h"
#include "templates/parts/lengths/host.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

/// Of one head, in tiles of 128 rows.
std::int64_t tiles_of(const Sequences& sequences) {
  std::int64_t tiles = 0;
  for (std::int64_t i = 0; i < sequences.problem.batch; ++i)
    tiles += (problem_of_sequence(sequences, i).seqlen_q + 127) / 128;
  return tiles;
}

TEST(TileQueue, HasRoomForTheTilesOfAnyLengths) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=16 num_heads=8 seqlen=8192 tokens=16384 head_dim=128 lengths=packed");
  const std::int64_t room = query_tiles_of_head(problem, 128, 1);
  EXPECT_LE(room, 16384 / 128 + 16);
  for (unsigned seed = 0; seed < 50; ++seed) {
    HostTensors host;
    set_random_sequences(problem, host, seed);
    EXPECT_LE(tiles_of(sequences_of(problem, host)), room);
  }
  // The worst: each sequence's last tile has one row.
  std::vector<int> begins = {0};
  for (int i = 0; i < 16; ++i) begins.push_back(begins.back() + (i < 15 ? 1025 : 1));
  EXPECT_LE(tiles_of({problem, {.lengths = {.q = begins.data(), .kv = begins.data()}}}), room);
  const Problem used = parse_problem(
      "fwd bf16 batch=3 num_heads=8 seqlen=200 head_dim=128 lengths=used");
  EXPECT_EQ(query_tiles_of_head(used, 128, 1), 6);
  EXPECT_EQ(query_tiles_of_head(used, 128, 4), 3 * 7);
}

TEST(TileQueue, TakesSequencesInGroupsWhereOneHeadOutgrowsTheL2) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=64 num_heads=8 seqlen=65536 tokens=1000000 head_dim=128 lengths=packed");
  EXPECT_EQ(tile_schedule(problem, TileSource::kList, {.block_m = 128}, 32, false).keys_per_group,
            (32 << 20) / 512);
  EXPECT_EQ(tile_schedule(problem, TileSource::kList, {.block_m = 128}, 0, false).keys_per_group, 0)
      << "head after head";
  const Problem small = parse_problem(
      "fwd bf16 batch=16 num_heads=8 seqlen=8192 tokens=16384 head_dim=128 lengths=packed");
  EXPECT_EQ(tile_schedule(small, TileSource::kList, {.block_m = 128}, 32, false).keys_per_group, 0);
  EXPECT_EQ(
      tile_schedule(small, TileSource::kList, {.block_m = 128}, 32, false).order.heads_per_group, 4)
      << "8 MiB each";
}

TEST(TileSource, IsWhatAllProblemsOfABucketShare) {
  const auto source = [](const std::string& words, const QueryTiling& tiling) {
    return tile_source(parse_problem("fwd bf16 num_heads=32:8 head_dim=128 " + words), false,
                       tiling);
  };
  const QueryTiling decode{.block_m = 16, .pack_gqa = 4, .blocks_per_sm = 4},
      split{.block_m = 16, .pack_gqa = 4, .blocks_per_sm = 4, .num_splits = 2},
      prefill{.block_m = 128},
      split_64{.block_m = 64, .pack_gqa = 4, .blocks_per_sm = 2, .num_splits = 2};
  EXPECT_EQ(source("batch=9 seqlen=1:8192", decode), TileSource::kSizes);
  EXPECT_EQ(source("batch=9 seqlen=1:8192 lengths=used", decode), TileSource::kBound);
  EXPECT_EQ(source("batch=64 seqlen=1:8192 lengths=used", decode), TileSource::kBound);
  EXPECT_EQ(source("batch=65 seqlen=1:8192 lengths=used", decode), TileSource::kList)
      << "long ones first: 128 sequences have more tiles than run at once";
  EXPECT_EQ(source("batch=65 seqlen=1:8192 lengths=used", split), TileSource::kLengths);
  EXPECT_EQ(source("batch=257 seqlen=1:8192 lengths=used", split), TileSource::kList);
  EXPECT_EQ(source("batch=1 seqlen=500:8192 lengths=used", prefill), TileSource::kBound);
  EXPECT_EQ(source("batch=2 seqlen=500:8192 lengths=used", prefill), TileSource::kList);
  EXPECT_EQ(source("batch=3 seqlen=1:99 lengths=packed page_size=16", decode), TileSource::kBound);
  // With batch_invariant one code serves every batch.
  for (const int batch : {1, 3, 5000}) {
    const std::string invariant = "lengths=used batch_invariant batch=" + std::to_string(batch);
    for (const QueryTiling& tiling : {decode, split})
      EXPECT_EQ(source(invariant + " seqlen=1:8192", tiling), TileSource::kBound);
    EXPECT_EQ(source(invariant + " seqlen=500:8192", prefill), TileSource::kList);
  }
  // The bucket's answer is that of each of its problems.
  for (const char* lengths : {"used", "packed"}) {
    for (std::int64_t batch = 1; batch <= 300; batch += batch < 20 ? 1 : 37) {
      for (const int seqlen : {0, 1, 2, 3, 4, 5, 16, 17, 100, 129, 500, 3000}) {
        const Problem problem = parse_problem(
            fmt::format("fwd bf16 batch={} num_heads=8:2 seqlen={}:{} head_dim=64 lengths={}",
                        batch, seqlen, seqlen + 1, lengths));
        for (const QueryTiling& tiling : {decode, split, prefill, split_64})
          EXPECT_EQ(tile_source(problem, false, tiling),
                    tile_source(bucket(problem), false, tiling))
              << to_string(problem);
      }
    }
  }
}

TEST(LaunchOfLengths, HaveNoStepBeforeThemWhereTheOrderOfTilesDoesNotMatter) {
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_regtile_f32"}) {
    const Family& family = *find_family(name);
    const bool fp32 = family.name == "fwd_regtile_f32";
    const DeviceFacts& device = typical_device("90a");
    for (const char* seqlen : {"1:2048", "100:2048"}) {
      const Problem problem = parse_problem(
          fmt::format("fwd {} batch=2 num_heads=8:2 seqlen={} head_dim=64 lengths=used",
                      fp32 ? "fp32" : "bf16", seqlen));
      for (const Candidate& candidate : candidates(family, problem, device)) {
        if (!fp32 && candidate.config.get("num_splits") != 1) continue;
        SCOPED_TRACE(to_string(candidate.config));
        const Launch launch = family.launch(candidate.config, problem, device);
        const std::string entry = family.render(candidate.config, problem).entry;
        ASSERT_EQ(launch.steps.size(), entry.find("BoundOrder") == entry.npos ? 2u : 1u);
        if (launch.steps.size() == 1u) {
          EXPECT_EQ(launch.workspace_bytes, 0u);
          EXPECT_FALSE(launch.steps.front().overlaps_previous);
          EXPECT_EQ(entry.find("TileQueue"), entry.npos);
        }
      }
    }
  }
}

TEST(LaunchOfLengths, IsAStepThatListsTheTilesAndOneThatTakesThem) {
  for (const char* name : {"fwd_wgmma_sm90a", "fwd_mma_sm80"}) {
    const Family& family = *find_family(name);
    const DeviceFacts& device = typical_device("90a");
    for (const char* lengths : {"packed", "used"}) {
      const Problem problem = parse_problem(
          std::string("fwd bf16 batch=6 num_heads=8 seqlen=1000 head_dim=128 causal lengths=") +
          lengths);
      const Candidate first = candidates(family, problem, device).front();
      const Launch launch = family.launch(first.config, problem, device);
      ASSERT_EQ(launch.steps.size(), 2u);
      EXPECT_EQ(launch.steps[0].kernel, "tile_queue");
      constexpr int kFewestTiles = ceil_div(1000, 192);  // of a sequence
      EXPECT_GE(launch.workspace_bytes, sizeof(TileQueue) + 6 * kFewestTiles * sizeof(QueuedTile));
      const std::string entry = family.render(first.config, problem).entry;
      EXPECT_THAT(entry, testing::HasSubstr("using Order = QueueOrder;"));
      EXPECT_THAT(entry, testing::HasSubstr("WithLengths<"));
      for (const LaunchStep& step : launch.steps) {
        EXPECT_EQ(test::places_of(own_argument<bind_lengths>(), step).size(), 1u);
      }
    }
    const Problem none = parse_problem(
        "fwd bf16 batch=0 num_heads=8 seqlen=1000 head_dim=128 lengths=packed");
    const std::vector<Candidate> configs = candidates(family, none, device);
    if (!configs.empty()) {
      EXPECT_TRUE(family.launch(configs.front().config, none, device).steps.empty());
    }
  }
}

TEST(LaunchOfLengths, LeavesDenseKernelsAlone) {
  const Family& family = *find_family("fwd_mma_sm80");
  const Problem dense = parse_problem("fwd bf16 batch=6 num_heads=8 seqlen=1000 head_dim=128");
  const Candidate first = candidates(family, dense, typical_device("90a")).front();
  EXPECT_THAT(family.render(first.config, dense).entry, testing::Not(testing::HasSubstr("engths")));
}

TEST(LadderFamilies, SayThatTheyDoNotTakeLengths) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=6 num_heads=8 seqlen=1000 head_dim=128 lengths=packed");
  for (const char* name : {"fwd_wmma", "fwd_flash_vec", "fwd_flash_scalar", "fwd_materialized"})
    EXPECT_THAT(rejection(*find_family(name), problem, typical_device("90a").arch),
                testing::HasSubstr("lengths"));
}

}  // namespace
}  // namespace attnforge
