// bwd_mma_sm80_test.cpp - where the kernel puts sums of dQ, how its warps share them, and what a
// launch consists of.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/candidates.h"
#include "templates/bwd_mma_sm80/config.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

constexpr BwdMmaSm80Config config_of(int head_dim, int block_m, int dq_vector) {
  BwdMmaSm80Config c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = head_dim;
  c.alignment = 16;
  c.block_m = block_m, c.block_n = 64, c.num_warps = 4, c.roles = 2, c.step_m = 32;
  c.stages = c.ds_stages = 2;
  c.dq_vector = dq_vector;
  c.blocks_per_sm = 1;
  return c;
}

/// Each element of a tile of dQ has a place of its own, and the columns that the step after reads
/// together are neighbours.
template <BwdMmaSm80Config C>
void expect_own_places() {
  using Tile = BwdMmaSm80DqTile<C>;
  static_assert(C.valid());
  std::vector<bool> taken(Tile::kRows * Tile::kColumns);
  for (int row = 0; row < Tile::kRows; ++row)
    for (int column = 0; column < Tile::kColumns; ++column) {
      const int at = Tile::offset(row, column);
      ASSERT_TRUE(at >= 0 && at < Tile::kRows * Tile::kColumns) << row << ' ' << column;
      EXPECT_FALSE(taken[at]) << row << ' ' << column;
      taken[at] = true;
    }
}

TEST(BwdMmaSm80, EverySumOfDqHasItsOwnPlace) {
  expect_own_places<config_of(64, 64, 4)>();
  expect_own_places<config_of(72, 32, 4)>();
  expect_own_places<config_of(128, 128, 1)>();
  expect_own_places<config_of(8, 64, 1)>();
}

/// With the warp that has dV as far ahead of the other as barriers let it, in every tile. A barrier
/// that one warp has come to twice would let the other pass too late, or never.
TEST(BwdMmaSm80, NoBarrierIsArrivedAtAgainBeforeItWasLeft) {
  for (const int num_warps : {2, 4, 8, 16})
    for (const int steps : {1, 2, 3, 4, 8}) {
      BwdMmaSm80Config c = config_of(64, 16 * steps, 4);
      c.num_warps = num_warps, c.step_m = 16;
      EXPECT_LE(1 + c.key_warps() * c.hand_overs(), 16) << "barriers";
      std::vector<bool> arrived(c.hand_overs());
      int left = 0;  // steps whose barrier the other warp has left
      for (int step = 0; step < steps; ++step) {
        ASSERT_FALSE(arrived[c.hand_over(step)]) << num_warps << " warps, step " << step;
        arrived[c.hand_over(step)] = true;
        if (!c.waits_for_other(step)) continue;
        for (; left <= step; ++left) arrived[c.hand_over(left)] = false;
      }
    }
}

/// What passes from one role to another takes the memory of dS. In fp32 it needs as much beside it.
TEST(BwdMmaSm80, WhatDsIsMadeOfIsFp32Where16BitsHaveNoNumbersForIt) {
  BwdMmaSm80Config c = config_of(128, 64, 4);
  EXPECT_EQ(c.beside_ds_bytes(), 0);
  c.dtype = kFp16;
  EXPECT_EQ(c.beside_ds_bytes(), 64 * c.block_n * 2);
  EXPECT_EQ(c.rows_begin(), c.beside_ds_begin() + c.beside_ds_bytes());
  c.roles = 1;
  EXPECT_EQ(c.beside_ds_bytes(), 0);
}

/// Four warps with the same keys: a tile of P beside dS, barriers for each half of both, and scores
/// and sums half as large as those of pairs with as many keys.
TEST(BwdMmaSm80, FourWarpsShareKeysByHalves) {
  BwdMmaSm80Config pairs = config_of(256, 64, 4);
  pairs.num_warps = 8, pairs.step_m = 64;
  BwdMmaSm80Config fours = pairs;
  fours.roles = 4;
  EXPECT_TRUE(pairs.valid() && fours.valid());
  EXPECT_EQ(fours.warp_n(), 2 * pairs.warp_n());
  EXPECT_EQ(fours.warp_m() * fours.warp_n(), pairs.warp_m() * pairs.warp_n());
  EXPECT_EQ(fours.smem_bytes(), pairs.smem_bytes() + 64 * 64 * 2);
  EXPECT_EQ(fours.beside_ds_begin(), fours.p_begin() + 64 * 64 * 2);
  EXPECT_EQ(fours.named_barriers(), 14);
  fours.num_warps = 16, fours.block_n = 64;
  EXPECT_FALSE(fours.valid()) << "28 barriers";
  fours = pairs, fours.roles = 4, fours.head_dim = 200;
  EXPECT_FALSE(fours.valid()) << "columns are shared 32 by 32";
}

/// Warps take every n-th fragment of a tile of dQ, as the kernel does.
TEST(BwdMmaSm80, WarpsShareATileOfDqCompletely) {
  for (const int head_dim : {8, 40, 64, 72, 96, 112, 128, 192, 200, 256})
    for (const int block_m : {32, 64, 128})
      for (const int num_warps : {2, 4, 8, 16}) {
        BwdMmaSm80Config c = config_of(head_dim, block_m, 4);
        c.num_warps = num_warps;
        const int row_warps = c.dq_row_warps(), column_warps = num_warps / row_warps;
        EXPECT_EQ(row_warps * column_warps, num_warps);
        EXPECT_EQ(c.dq_rows() * row_warps * 16, block_m);
        EXPECT_GE(c.dq_columns() * column_warps * 16, head_dim);
      }
}

Launch launch_on(std::string_view arch, const std::string& text) {
  const Problem problem = parse_problem(text);
  const DeviceFacts device = typical_device(arch);
  const Family& family = *find_family("bwd_mma_sm80");
  const Candidate best = candidates(family, problem, device).front();
  return family.launch(best.config, problem, device);
}

TEST(BwdMmaSm80, TheStepsAreRowsThenKeysThenDq) {
  for (const char* arch : {"80", "86", "89", "90a"}) {
    const Launch added = launch_on(arch, "bwd bf16 num_heads=4 seqlen=512 head_dim=64 causal");
    ASSERT_EQ(added.steps.size(), 3u) << arch;
    EXPECT_EQ(added.steps[1].kernel.rfind("bwd_mma_sm80_bf16_d64_", 0), 0u);
    const Launch own = launch_on(
        arch, "bwd bf16 num_heads=4 seqlen=512 head_dim=64 causal deterministic");
    ASSERT_EQ(own.steps.size(), 3u) << arch;
    EXPECT_TRUE(own.steps[2].kernel.ends_with("_dq")) << own.steps[2].kernel;
    EXPECT_LT(own.workspace_bytes, added.workspace_bytes);  // no sums
  }
}

TEST(BwdMmaSm80, SumsInAnyOrderAreNotDeterministic) {
  const Problem problem = parse_problem(
      "bwd bf16 num_heads=4 seqlen=512 head_dim=64 deterministic");
  const DeviceFacts device = typical_device("90a");
  for (const Candidate& candidate : candidates(*find_family("bwd_mma_sm80"), problem, device))
    for (const auto& [name, value] : candidate.config.fields)
      if (name == "dq") EXPECT_EQ(value, kDqOwnKernel);
}

}  // namespace
}  // namespace attnforge
