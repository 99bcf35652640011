// query_walk_test.cpp - the query tiles of a key tile, beside each pair of a query and a key.
#include <gtest/gtest.h>

#include <string>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/backward/query_walk.cuh"
// clang-format on

namespace attnforge {
namespace {

struct TwoLengths {
  int queries, keys;
  int q() const { return queries; }
  int kv() const { return keys; }
};

/// Every key tile of one problem.
template <bool kLeft, bool kRight>
void expect_tiles(const FwdParams& p, const TwoLengths& lengths, int block_m, int block_n) {
  for (int first_key = 0; first_key < lengths.keys + block_n; first_key += block_n) {
    const auto walk = QueryWalk<kLeft, kRight>::of_keys(p, lengths, block_m, first_key, block_n);
    SCOPED_TRACE("keys from " + std::to_string(first_key) + " of " + std::to_string(lengths.keys) +
                 ", queries " + std::to_string(lengths.queries) + ", windows " +
                 std::to_string(p.window_left) + " " + std::to_string(p.window_right));
    EXPECT_LE(0, walk.begin);
    EXPECT_LE(walk.begin, walk.end);
    int seen_tiles = 0;
    for (int m = 0; m * block_m < lengths.queries; ++m) {
      bool some = false, all = first_key + block_n <= lengths.keys;
      for (int row = m * block_m; row < std::min((m + 1) * block_m, lengths.queries); ++row) {
        const int position = row + lengths.keys - lengths.queries;
        for (int key = first_key; key < std::min(first_key + block_n, lengths.keys); ++key) {
          const bool sees = key >= position - p.window_left && key <= position + p.window_right;
          some |= sees, all &= sees;
        }
      }
      seen_tiles += some;
      if (some) {
        EXPECT_TRUE(m >= walk.begin && m < walk.end) << m;
        EXPECT_EQ(walk.masked(m), !all) << m;
      } else if (m >= walk.begin && m < walk.end) {
        EXPECT_TRUE(walk.masked(m)) << m;
      }
    }
    // Between windows that cross one another a tile may see nothing; else no tile is for nothing.
    if (p.window_left >= 0 && p.window_right >= 0) EXPECT_EQ(walk.count(), seen_tiles);
  }
}

TEST(QueryWalk, HasEveryTileThatSeesAKeyAndMasksThoseThatMissOne) {
  for (const int queries : {1, 15, 16, 33, 70})
    for (const int keys : {1, 16, 31, 48, 70}) {
      const TwoLengths lengths{queries, keys};
      for (const int left : {kOpenWindow, 0, 7, 20})
        for (const int right : {kOpenWindow, 0, 5, 24}) {
          FwdParams p{};
          p.window_left = left;
          p.window_right = right;
          expect_tiles<true, true>(p, lengths, 16, 16);
          expect_tiles<true, true>(p, lengths, 8, 24);
          if (left == kOpenWindow) expect_tiles<false, true>(p, lengths, 16, 8);
          if (right == kOpenWindow) expect_tiles<true, false>(p, lengths, 16, 8);
          if (left == kOpenWindow && right == kOpenWindow)
            expect_tiles<false, false>(p, lengths, 24, 16);
        }
    }
}

}  // namespace
}  // namespace attnforge
