// bwd_turns_test.cpp - bwd_wgmma_sm90a where dQ is added in an order: whose turn it is at a tile,
// and that nobody waits for a block that starts later.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/work.cuh"
#include "pieces/fixed_lengths.cuh"
#include "backward/query_walk.cuh"
#include "tile/tile_order.cuh"
// clang-format on

namespace attnforge {
namespace {

template <bool kLeft, bool kRight>
struct TurnPieces {
  using Lengths = FixedLengths;
  using Queries = QueryWalk<kLeft, kRight>;
};

template <bool kLeft, bool kRight>
constexpr BwdWgmmaSm90aConfig config_of(int dq, int block_m) {
  BwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = 64;
  c.alignment = 16;
  c.left_bound = kLeft, c.right_bound = kRight;
  c.block_m = block_m;
  c.do_stages = c.ds_stages = 2;
  c.late_dq = c.dq_rounds = c.dq_stages = 1;
  c.dq = dq, c.group_splits = 1;
  return c;
}

/// Blocks that come to a query tile of a head, in the order in which they start: their turns.
template <BwdWgmmaSm90aConfig C, class Pieces>
std::map<std::pair<int, int>, std::vector<int>> turns_of(const BwdWgmmaSm90aParams& params) {
  std::map<std::pair<int, int>, std::vector<int>> turns;
  for (int block = 0; block < params.order.m_blocks * params.order.heads; ++block) {
    const BwdWgmmaSm90aWork<C, Pieces, BwdWgmmaSm90aParams> work(params, block);
    work.for_each([&](const QueryPlace& place) {
      turns[{work.keys.sequence * params.fwd.num_heads_q + place.head, place.m}].push_back(
          work.turn(place));
    });
  }
  return turns;
}

/// The family starts the last keys first where others wait for them. Returns the most turns of a
/// tile.
template <int kDq, int kBlockM, bool kLeft, bool kRight>
std::size_t expect_turns(int queries, int keys, int left, int right) {
  constexpr BwdWgmmaSm90aConfig kConfig = config_of<kLeft, kRight>(kDq, kBlockM);
  static_assert(kConfig.valid());
  BwdWgmmaSm90aParams params{};
  params.fwd.batch = 2, params.fwd.num_heads_q = 4, params.fwd.num_heads_kv = 2;
  params.fwd.seqlen_q = queries, params.fwd.seqlen_kv = keys;
  params.fwd.window_left = left, params.fwd.window_right = right;
  std::size_t most = 0;
  for (const int heads_per_group : {1, 3}) {
    params.order = {.m_blocks = ceil_div(keys, kConfig.block_n()),
                    .heads = 4,
                    .heads_per_group = heads_per_group,
                    .heavy_last = kDq == kDqFromDiagonal};
    for (const auto& [tile, turns] : turns_of<kConfig, TurnPieces<kLeft, kRight>>(params)) {
      most = std::max(most, turns.size());
      for (std::size_t i = 0; i < turns.size(); ++i)
        EXPECT_EQ(turns[i], static_cast<int>(i))
            << "query tile " << tile.second << " of head " << tile.first << ", " << queries << ':'
            << keys << ", windows " << left << ' ' << right << ", dq " << kDq;
    }
  }
  return most;
}

template <int kDq, int kBlockM>
void expect_turns_of_lengths() {
  for (const int queries : {1, 100, 128, 700})
    for (const int keys : {1, 128, 300, 900}) {
      const std::size_t most = expect_turns<kDq, kBlockM, false, true>(queries, keys, kOpenWindow,
                                                                       0);
      EXPECT_EQ(most, std::size_t(ceil_div(keys, 128))) << "the last query sees all keys";
      for (const int left : {0, 70, 300})
        for (const int right : {0, 130})
          expect_turns<kDq, kBlockM, true, true>(queries, keys, left, right);
    }
}

TEST(BwdTurns, AreTakenOneAfterAnotherByBlocksThatStartInThisOrder) {
  expect_turns_of_lengths<kDqInOrder, 64>();
  expect_turns_of_lengths<kDqInOrder, 128>();
  expect_turns<kDqInOrder, 80, false, false>(300, 500, kOpenWindow, kOpenWindow);
}

TEST(BwdTurns, FromTheDiagonalAreTakenByTheLastKeysFirst) {
  expect_turns_of_lengths<kDqFromDiagonal, 64>();
  expect_turns_of_lengths<kDqFromDiagonal, 80>();
  expect_turns_of_lengths<kDqFromDiagonal, 128>();
}

/// What from the diagonal is for: at the k-th step of all, blocks of a head that start together are
/// at different query tiles, and whoever comes to a tile finds that those before it were there at
/// an earlier step.
TEST(BwdTurns, FromTheDiagonalNobodyWaitsForABlockOfTheSameStep) {
  constexpr BwdWgmmaSm90aConfig kConfig = config_of<false, true>(kDqFromDiagonal, 128);
  BwdWgmmaSm90aParams params{};
  params.fwd.batch = params.fwd.num_heads_q = params.fwd.num_heads_kv = 1;
  params.fwd.seqlen_q = params.fwd.seqlen_kv = 1000;
  params.fwd.window_left = kOpenWindow;
  params.order = {.m_blocks = 8, .heads = 1, .heads_per_group = 1, .heavy_last = 1};
  for (int block = 0; block < 8; ++block) {
    const BwdWgmmaSm90aWork<kConfig, TurnPieces<false, true>, BwdWgmmaSm90aParams> work(params,
                                                                                        block);
    int step = 0;
    work.for_each([&](const QueryPlace& place) { EXPECT_EQ(work.turn(place), step++); });
  }
}

/// Of heads that share keys, in any order under a mask: all heads at the last query tile, then all
/// at the one before, so that every block of a K/V head begins with the same tiles; or of every
/// second K/V head from the diagonal on.
TEST(BwdWalk, UnderAMaskHeadsThatShareKeysAreVisitedTogether) {
  constexpr BwdWgmmaSm90aConfig kConfig = config_of<false, true>(kDqFromRegs, 64);
  BwdWgmmaSm90aParams params{};
  params.fwd.batch = 1, params.fwd.num_heads_kv = 2;
  params.fwd.seqlen_q = params.fwd.seqlen_kv = 600;
  params.fwd.window_left = kOpenWindow;
  struct {
    int group, from_end_every;
  } cases[] = {{1, 0}, {3, 0}, {3, 1}, {1, 2}, {3, 2}};
  for (const auto [group, from_end_every] : cases) {
    params.fwd.num_heads_q = 2 * group;
    params.from_end_every = from_end_every;
    params.order = {.m_blocks = 5, .heads = 2, .heads_per_group = 1, .heavy_last = 0};
    for (int block = 0; block < 10; ++block) {
      const BwdWgmmaSm90aWork<kConfig, TurnPieces<false, true>, BwdWgmmaSm90aParams> work(params,
                                                                                          block);
      const int kv_head = block / 5, first_m = block % 5 * 2;
      const bool from_end = from_end_every == 1 || (from_end_every == 2 && kv_head == 0);
      std::vector<std::pair<int, int>> seen, wanted;
      work.for_each([&](const QueryPlace& place) { seen.emplace_back(place.m, place.head); });
      for (int m = first_m; m < 10; ++m)
        for (int head = 0; head < group; ++head)
          wanted.emplace_back(from_end ? 9 + first_m - m : m, kv_head * group + head);
      EXPECT_EQ(seen, wanted) << "block " << block << ", " << group << " heads";
    }
  }
}

}  // namespace
}  // namespace attnforge
