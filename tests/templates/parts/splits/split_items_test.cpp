// split_items_test.cpp - how key tiles are shared out among splits, on threads of the host: by the
// rule that blocks and the step that merges compute from the device's lengths, beside plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <random>
#include <string>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/parts/splits/items.cuh"
// clang-format on

namespace attnforge {
namespace {

TEST(TileSlice, OfAllSplitsAreAllTilesOnceAndAlmostAlike) {
  for (int tiles = 0; tiles <= 70; ++tiles) {
    for (int splits = 1; splits <= 40; ++splits) {
      int end = 0;
      for (int split = 0; split < splits; ++split) {
        const TileSlice slice = TileSlice::of(tiles, split, splits);
        EXPECT_EQ(slice.first, end);
        EXPECT_GE(slice.last - slice.first, tiles / splits);
        EXPECT_LE(slice.last - slice.first, ceil_div(tiles, splits));
        end = slice.last;
      }
      EXPECT_EQ(end, tiles);
    }
  }
}

struct TilesOf {
  const std::vector<int>& tiles;
  int operator()(int sequence) const { return tiles[static_cast<std::size_t>(sequence)]; }
};

int items_of(const std::vector<int>& tiles, int item_tiles) {
  int items = 0;
  for (const int each : tiles) items += ceil_div(each, item_tiles);
  return items;
}

/// The fewest tiles an item that give no more than `most` items.
int fewest(const std::vector<int>& tiles, int most) {
  int item_tiles = 1;
  while (items_of(tiles, item_tiles) > most) ++item_tiles;
  return item_tiles;
}

/// What a warp finds for a batch.
struct Found {
  int item_tiles = 0;
  std::vector<SplitItem> items;  // [all that there may be, and a few after them]
  std::vector<SplitItem> first;  // [sequences]
  int differing_lanes = 0;
};

bool same(const SplitItem& a, const SplitItem& b) {
  return a.sequence == b.sequence && a.split == b.split && a.splits == b.splits &&
         a.number == b.number;
}

constexpr int kAnyNumber = 1 << 30;  // of splits has a place

int item_tiles_of(const std::vector<int>& tiles, int splits, int at_once = kAnyNumber) {
  const int batch = static_cast<int>(tiles.size());
  int item_tiles = 0;
  test::run_on_host(1, 32, [&] {
    const TilesOf tiles_of{tiles};
    const SplitItems<TilesOf> all(tiles_of, batch, batch * splits, at_once);
    if (threadIdx.x == 0) item_tiles = all.item_tiles;
  });
  return item_tiles;
}

Found found(const std::vector<int>& tiles, int splits) {
  const int batch = static_cast<int>(tiles.size()), most = batch * splits;
  Found result;
  result.items.resize(static_cast<std::size_t>(most + 2));
  result.first.resize(tiles.size());
  std::atomic<int> differing = 0;
  test::run_on_host(1, 32, [&] {
    const TilesOf tiles_of{tiles};
    const SplitItems<TilesOf> all(tiles_of, batch, most, kAnyNumber);
    const auto keep = [&](SplitItem& to, const SplitItem& item) {
      if (threadIdx.x == 0) to = item;
      test::wait_at(test::own_warp->barrier);
      if (!same(to, item)) ++differing;
    };
    if (threadIdx.x == 0) result.item_tiles = all.item_tiles;
    for (int i = 0; i < most + 2; ++i) keep(result.items[static_cast<std::size_t>(i)], all.item(i));
    for (int i = 0; i < batch; ++i)
      keep(result.first[static_cast<std::size_t>(i)], all.first_of(i));
  });
  result.differing_lanes = differing;
  return result;
}

void expect_shared(const std::vector<int>& tiles, int splits) {
  SCOPED_TRACE(testing::PrintToString(tiles) + " by " + std::to_string(splits));
  const int most = static_cast<int>(tiles.size()) * splits;
  const Found all = found(tiles, splits);
  EXPECT_EQ(all.differing_lanes, 0);
  EXPECT_LE(items_of(tiles, all.item_tiles), most) << "the grid has blocks for all";
  const int best = fewest(tiles, most);
  EXPECT_GE(all.item_tiles, best);
  EXPECT_LE(all.item_tiles, best + 1 + best / 16) << "near the best";

  std::size_t item = 0;
  for (std::size_t i = 0; i < tiles.size(); ++i) {
    const int its = ceil_div(tiles[i], all.item_tiles);
    EXPECT_EQ(all.first[i].splits, its);
    EXPECT_EQ(all.first[i].number, static_cast<int>(item));
    for (int split = 0; split < its; ++split, ++item) {
      const SplitItem expected{static_cast<int>(i), split, its, static_cast<int>(item)};
      EXPECT_TRUE(same(all.items[item], expected)) << "item " << item;
    }
  }
  for (; item < all.items.size(); ++item) EXPECT_EQ(all.items[item].sequence, -1);
}

TEST(SplitItems, ShareOutAllTilesOfUnequalSequences) {
  expect_shared({0}, 4);
  expect_shared({1}, 4);
  expect_shared({1000}, 7);
  expect_shared({0, 0, 0}, 2);
  expect_shared({0, 1, 0}, 2);
  expect_shared({512, 1, 1, 0, 1}, 2);
  expect_shared({1, 1, 1, 512}, 3);
  expect_shared({3, 100, 17, 64, 5, 9}, 4);
}

TEST(SplitItems, AreCountedOverMoreSequencesThanAWarpHasLanes) {
  std::mt19937 random(7);
  const auto random_tiles = [&](int batch) {
    std::vector<int> tiles;
    for (int i = 0; i < batch; ++i) {
      const unsigned wide = random() % 9;
      tiles.push_back(static_cast<int>(random() % (1u << wide)));
    }
    return tiles;
  };
  expect_shared(random_tiles(34), 2);
  // Of larger batches only how long an item is.
  for (const int batch : {64, 65, 256}) {
    for (const int splits : {2, 4}) {
      const std::vector<int> tiles = random_tiles(batch);
      const int item_tiles = item_tiles_of(tiles, splits), best = fewest(tiles, batch * splits);
      EXPECT_LE(items_of(tiles, item_tiles), batch * splits);
      EXPECT_LE(item_tiles, best + 1 + best / 16);
    }
  }
}

TEST(SplitItems, AreNoMoreThanHaveAPlace) {
  const std::vector<int> equal(8, 128), unequal = {128, 70, 100, 64, 90, 128, 77, 110};
  EXPECT_EQ(items_of(equal, item_tiles_of(equal, 8, 33)), 32);
  const int items = items_of(unequal, item_tiles_of(unequal, 8, 33));
  EXPECT_LE(items, 33);
  EXPECT_GE(items, 28);
  EXPECT_EQ(item_tiles_of(equal, 2, 33), 64) << "nor than were asked for";
}

TEST(SplitItems, TakeTurnsOnlyWhereManySequencesAreUnequal) {
  const std::vector<int> equal(64, 128);
  EXPECT_EQ(item_tiles_of(equal, 4, 33), 128) << "whole sequences fill the GPU";
  EXPECT_EQ(item_tiles_of(std::vector<int>(64, 0), 4, 33), 1);
  std::vector<int> unequal = equal;
  for (std::size_t i = 0; i < unequal.size(); ++i) unequal[i] -= static_cast<int>(i);
  EXPECT_EQ(item_tiles_of(unequal, 4, 33), item_tiles_of(unequal, 4));
  EXPECT_LT(item_tiles_of(unequal, 4, 33), 64);
}

TEST(SplitItems, OfEqualSequencesAreThoseOfSequencesByThemselves) {
  for (const int tiles : {1, 7, 128, 129}) {
    for (const int splits : {2, 5, 16}) {
      const int alone = item_tiles_of({tiles}, splits);
      EXPECT_EQ(alone, ceil_div(tiles, splits));
      EXPECT_EQ(item_tiles_of({tiles, tiles, tiles}, splits), alone);
    }
  }
}

}  // namespace
}  // namespace attnforge
