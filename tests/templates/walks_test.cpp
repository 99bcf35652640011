// walks_test.cpp - which key tiles a block walks over, on the host: windows, and slices of a walk
// for any number of splits, beside each pair by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/parts/splits/params.h"
#include "templates/pieces/fixed_lengths.cuh"
#include "templates/parts/key_lists/walk.cuh"
#include "templates/pieces/range_walk.cuh"
#include "templates/pieces/window_mask.cuh"
#include "templates/ptx/grid_dependency.cuh"
#include "templates/ptx/special.cuh"
#include "templates/tile/query_tile.cuh"
#include "templates/parts/splits/items.cuh"
// split_index() reads a register of the GPU: here it is a number of the test's.
namespace attnforge::test {
inline int split_of_block = 0;
}
static int x;  // of the registers that these tests do not read
#pragma push_macro("asm")
#undef asm
#define asm x = test::split_of_block; attnforge_no_asm
#include "templates/parts/splits/walk.cuh"
#pragma pop_macro("asm")
// clang-format on

namespace attnforge {
namespace {

struct Params {
  FwdParams fwd;
  PartialParams partials;
  KeyListParams lists;
};

using Tile = QueryTile<Params, 1, FixedLengths>;

/// Windows of so many keys before and after a row's position; kOpenWindow: all.
Params params_of(int seqlen_q, int seqlen_kv, int left, int right) {
  Params params{};
  FwdParams& p = params.fwd;
  p.batch = 3, p.num_heads_q = p.num_heads_kv = 2;
  p.seqlen_q = seqlen_q, p.seqlen_kv = seqlen_kv;
  p.window_left = left, p.window_right = right;
  return params;
}

Tile tile_of(const Params& params, int first_row) {
  return Tile(params, 0, 0, first_row, FixedLengths(params, 0));
}

bool sees(const Params& params, int row, int key) {
  const FwdParams& p = params.fwd;
  const int position = row + p.seqlen_kv - p.seqlen_q;
  return key >= 0 && key < p.seqlen_kv && key >= position - p.window_left &&
         key <= position + p.window_right;
}

template <bool kLeft>
void expect_sight(int seqlen_q, int seqlen_kv, int left, int right) {
  SCOPED_TRACE(std::to_string(seqlen_q) + ":" + std::to_string(seqlen_kv) + " window " +
               std::to_string(left) + ":" + std::to_string(right));
  const Params params = params_of(seqlen_q, seqlen_kv, left, right);
  const Tile tile = tile_of(params, 0);
  for (int first_row = 0; first_row < seqlen_q; ++first_row)
    for (int last_row = first_row; last_row < std::min(first_row + 4, seqlen_q); ++last_row)
      for (int first_key = 0; first_key < seqlen_kv; ++first_key)
        for (int keys = 1; keys <= 4; ++keys) {
          bool any = false;
          for (int row = first_row; row <= last_row; ++row)
            for (int key = first_key; key < first_key + keys; ++key)
              any = any || sees(params, row, key);
          EXPECT_EQ(WindowMask<kLeft>::sees(tile, first_row, last_row, first_key, keys), any)
              << "rows " << first_row << " to " << last_row << ", " << keys << " keys from "
              << first_key;
        }
}

TEST(WindowMask, SeesATileThatAnyOfItsRowsSeesAKeyOf) {
  expect_sight<false>(9, 14, kOpenWindow, 0);
  expect_sight<false>(12, 7, kOpenWindow, 0);  // the first rows see nothing
  expect_sight<false>(5, 9, kOpenWindow, 2);
  expect_sight<false>(5, 9, kOpenWindow, kOpenWindow);
  expect_sight<true>(9, 14, 3, 0);
  expect_sight<true>(9, 14, 0, 0);
  expect_sight<true>(9, 12, 2, 3);
  expect_sight<true>(9, 14, 1, kOpenWindow);
}

/// A tile of a walk, and whether some row does not see all of it.
struct Step {
  int tile;
  bool masked;
  bool operator==(const Step&) const = default;
};

template <class Walk>
std::vector<Step> by_index(const Walk& walk) {
  std::vector<Step> steps;
  for (int i = 0; i < walk.count(); ++i) steps.push_back({walk.tile(i), walk.masked(i)});
  return steps;
}

template <bool kLeft>
void expect_slices(int seqlen_q, int seqlen_kv, int left, int right) {
  constexpr int kRows = 16, kKeys = 8;
  using Whole = RangeWalk<kLeft>;
  for (int first_row = 0; first_row < seqlen_q; first_row += kRows) {
    Params params = params_of(seqlen_q, seqlen_kv, left, right);
    const Tile tile = tile_of(params, first_row);
    const std::vector<Step> whole = by_index(Whole::of_rows(params, tile, kKeys, first_row, kRows));
    for (const int splits : {1, 2, 3, 7, 8, 9, 10, 16, 33, 64}) {
      SCOPED_TRACE(std::to_string(splits) + " splits from row " + std::to_string(first_row));
      params.partials.splits = splits;
      std::vector<Step> together;
      for (test::split_of_block = 0; test::split_of_block < splits; ++test::split_of_block) {
        const auto walk = SplitWalk<Whole, EvenSplits>::of_rows(params, tile, kKeys, first_row,
                                                                kRows);
        EXPECT_LE(walk.begin, walk.clear_begin);
        EXPECT_LE(walk.clear_begin, walk.clear_end);
        EXPECT_LE(walk.begin, walk.clear_end);
        EXPECT_LE(walk.clear_end, walk.end);
        const std::vector<Step> steps = by_index(walk);
        together.insert(together.end(), steps.begin(), steps.end());
        std::vector<Step> by_place;
        walk.for_each([&](int place, bool masked) { by_place.push_back({place, masked}); });
        EXPECT_TRUE(by_place == steps) << "split " << test::split_of_block;
        for (const Step& step : steps) EXPECT_EQ(walk.is_clear(step.tile), !step.masked);
        EXPECT_LE(static_cast<int>(steps.size()), ceil_div(static_cast<int>(whole.size()), splits));
        // Of some of the rows: the same tiles.
        const auto part = walk.of_part(tile, kKeys, first_row, 1);
        EXPECT_EQ(part.count(), walk.count());
        if (part.count() != 0) {
          EXPECT_EQ(part.tile(0), walk.tile(0));
        }
        const auto seen = walk.seen_by(tile, kKeys, first_row, 1);
        EXPECT_EQ(walk.before(seen) + seen.count() + walk.after(seen), walk.count());
      }
      EXPECT_TRUE(together == whole);
    }
  }
}

TEST(SplitWalk, SlicesAreTheWholeWalkOneAfterAnother) {
  expect_slices<false>(1, 500, kOpenWindow, kOpenWindow);
  expect_slices<false>(40, 300, kOpenWindow, 0);
  expect_slices<false>(100, 60, kOpenWindow, 0);
  expect_slices<true>(40, 300, 70, 0);
  expect_slices<true>(64, 200, 5, 90);
}

TEST(SplitWalk, SlicesOfAListAreTheWholeList) {
  constexpr int kGroups = 4, kRows = 16;
  using Whole = ListWalk<kGroups>;
  for (const int tiles : {0, 1, 9, 50}) {
    const std::vector<KeyGroup> groups(static_cast<std::size_t>((tiles + 1) * kGroups));
    const std::vector<int> counts = {tiles};
    Params params = params_of(kRows, 1000, kOpenWindow, kOpenWindow);
    params.lists.batch = params.lists.heads = params.lists.m_blocks = 1;
    params.lists.groups = const_cast<KeyGroup*>(groups.data());
    params.lists.counts = const_cast<int*>(counts.data());
    const Tile tile = tile_of(params, 0);
    const Whole whole = Whole::of_rows(params, tile, 64, 0, kRows);
    for (const int splits : {1, 3, 9, 60}) {
      params.partials.splits = splits;
      int next = 0;
      for (test::split_of_block = 0; test::split_of_block < splits; ++test::split_of_block) {
        const auto walk = SplitWalk<Whole, EvenSplits>::of_rows(params, tile, 64, 0, kRows);
        for (int place = walk.first(); walk.has(place); place = walk.later(place, 1))
          EXPECT_EQ(walk.groups_at(place), whole.groups_at(next++)) << splits << " splits";
      }
      EXPECT_EQ(next, tiles);
    }
  }
}

TEST(EvenSplits, EachSplitOfEachRowHasItsOwnPlace) {
  Params params = params_of(5, 100, kOpenWindow, kOpenWindow);
  for (const int splits : {1, 8, 9, 30}) {
    params.partials.splits = splits;
    params.partials.rows_of_head = 5;
    EXPECT_EQ(EvenSplits::count(params), splits);
    i64 next = 0;
    for (int tensor = 0; tensor < 3; ++tensor)
      for (int head = 0; head < 2; ++head)
        for (int row = 0; row < 5; ++row) {
          const SplitsOfRow parts = EvenSplits::of_row(params, tensor, head, row);
          EXPECT_EQ(parts.count, splits);
          for (test::split_of_block = 0; test::split_of_block < splits; ++test::split_of_block) {
            EXPECT_EQ(EvenSplits::place(params, tensor, head, row), next);
            EXPECT_EQ(parts.first + test::split_of_block * parts.apart, next++);
          }
        }
  }
}

}  // namespace
}  // namespace attnforge
