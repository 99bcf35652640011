// shares_test.cpp - equal shares of all key tiles for persistent blocks, on threads of the host:
// what each block goes through, and where the step that merges looks for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#define blockDim attnforge::test::block_size
namespace attnforge::test {
inline constexpr Index block_size{64};
}  // namespace attnforge::test
#include "templates/parts/splits/by_share.cuh"
// clang-format on

namespace attnforge {
namespace {

/// Key tiles of each sequence; none: no query.
struct TestParams {
  struct {
    int batch, num_heads_q, num_heads_kv;
  } fwd;
  PartialParams partials;
  const std::vector<int>* tiles;
};
struct TestLengths {
  int queries;
  TestLengths(const TestParams& params, int sequence)
      : queries((*params.tiles)[static_cast<std::size_t>(sequence)] > 0) {}
  int q() const { return queries; }
};
struct TestWalk {
  static int count_of(const TestParams& params, const TestLengths&, int, int sequence, int, int,
                      int) {
    return (*params.tiles)[static_cast<std::size_t>(sequence)];
  }
};
constexpr int kGroup = 3;
using Splits = SharedSplits<TestLengths, TestWalk, 64, kGroup, true>;

/// A slice of a query tile that a block has: (sequence, head, first tile, end), and the block.
struct Piece {
  int sequence, head;
  TileSlice slice;
  int block;
  std::int64_t place;  // of its first row and head
  bool cut;            // as the block sees it
};

struct Found {
  std::vector<Piece> pieces;
  std::map<std::tuple<int, int, int>, SplitsOfRow> of_rows;  // of (sequence, query head, row)
};

Found found(const TestParams& params, int rows) {
  Found all;
  test::run_on_host(static_cast<unsigned>(params.partials.at_once), 64, [&] {
    Splits::find(params);
    __syncthreads();
    if (threadIdx.x == 0) {
      for (Share<Splits> share = Splits::own(); share.more(); share.advance(params)) {
        all.pieces.push_back({share.sequence, share.head, share.slice(), block_index(),
                              Splits::place(params, share.sequence, share.head * kGroup, 0),
                              Splits::is_cut(params, share.sequence, share.head)});
        EXPECT_EQ(share.place(params).head, share.sequence * params.fwd.num_heads_kv + share.head);
      }
    }
    __syncthreads();
  });
  test::run_on_host(1, 64, [&] {
    Splits::count_all(params);
    for (int sequence = 0; sequence <= params.fwd.batch; ++sequence)
      for (int head = 0; head < params.fwd.num_heads_q; ++head)
        for (int row = 0; row < rows; ++row) {
          const SplitsOfRow its = Splits::of_row(params, sequence, head, row);
          if (threadIdx.x == 0) all.of_rows[{sequence, head, row}] = its;
        }
  });
  return all;
}

void expect_shared(const std::vector<int>& tiles, int heads_kv, int blocks, int rows,
                   int team = 1) {
  SCOPED_TRACE(testing::PrintToString(tiles) +
               testing::PrintToString(std::tuple(heads_kv, blocks, team)));
  TestParams params{{static_cast<int>(tiles.size()), heads_kv * kGroup, heads_kv}, {}, &tiles};
  params.partials.at_once = blocks;
  params.partials.rows_of_head = rows;
  params.partials.team = team;
  Found all = found(params, rows);
  std::ranges::sort(all.pieces, {}, [](const Piece& its) {
    return std::tuple(its.sequence, its.head, its.slice.first);
  });
  const int total = std::accumulate(tiles.begin(), tiles.end(), 0) * heads_kv;

  // Each key tile once; blocks' shares differ by one tile at most.
  std::vector<int> of_block(static_cast<std::size_t>(blocks));
  std::size_t piece = 0;
  std::vector<std::int64_t> results;
  for (std::size_t sequence = 0; sequence < tiles.size(); ++sequence) {
    for (int head = 0; head < heads_kv; ++head) {
      std::vector<std::int64_t> its;
      for (int at = 0; at < tiles[sequence]; ++piece) {
        ASSERT_LT(piece, all.pieces.size());
        const Piece& next = all.pieces[piece];
        ASSERT_EQ(std::tuple(next.sequence, next.head, next.slice.first),
                  std::tuple(static_cast<int>(sequence), head, at));
        ASSERT_GT(next.slice.last, at);
        at = next.slice.last;
        of_block[static_cast<std::size_t>(next.block)] += at - next.slice.first;
        its.push_back(next.place);
        EXPECT_EQ(next.cut, next.slice.first > 0 || at < tiles[sequence])
            << "of what is whole the block stores the rows itself";
      }
      for (int row = 0; row < rows; ++row)
        for (int q = head * kGroup; q < (head + 1) * kGroup; ++q) {
          const SplitsOfRow of_row = all.of_rows.at({static_cast<int>(sequence), q, row});
          ASSERT_EQ(of_row.count, static_cast<int>(its.size()));
          for (int i = 0; i < of_row.count; ++i) {
            const std::int64_t at = of_row.first + i * of_row.apart;
            EXPECT_EQ(at, its[static_cast<std::size_t>(i)] + row * kGroup + q % kGroup);
            results.push_back(at);
          }
        }
    }
  }
  EXPECT_EQ(piece, all.pieces.size()) << "nothing else";
  of_block.resize(static_cast<std::size_t>(blocks / team * team));  // others have nothing
  const auto [least, most] = std::minmax_element(of_block.begin(), of_block.end());
  EXPECT_LE(*most - *least, 1) << "of all blocks in teams";
  EXPECT_EQ(std::accumulate(of_block.begin(), of_block.end(), 0), total);
  EXPECT_EQ(all.of_rows.at({static_cast<int>(tiles.size()), 0, 0}).count, 0) << "no such sequence";
  // Places of all results are different, and in the room that the launch gives them.
  std::sort(results.begin(), results.end());
  EXPECT_EQ(std::adjacent_find(results.begin(), results.end()), results.end());
  if (!results.empty()) {
    EXPECT_LT(results.back(), std::int64_t(tiles.size() * heads_kv + blocks) * rows * kGroup);
  }
}

TEST(Shares, HaveEachKeyTileOnceAndAreFoundAgainByTheStepThatMerges) {
  expect_shared({5}, 1, 3, 1);
  expect_shared({5, 0, 3}, 2, 40, 1);  // more blocks than key tiles
  expect_shared({0}, 2, 3, 1);
  expect_shared({0, 0, 4, 0}, 2, 3, 2);
  expect_shared({1, 1, 1}, 1, 8, 1);
  expect_shared({7, 0, 100, 3, 3}, 2, 11, 2);
  expect_shared({7, 0, 100, 3, 3}, 8, 12, 2, 4);
  expect_shared({1, 0, 2}, 4, 132, 1, 4);
  expect_shared({7, 0, 100, 3, 3}, 5, 132, 1, 5);  // two blocks are left over
  expect_shared({40, 9}, 10, 37, 2, 5);
  std::mt19937 random(3);
  for (const int batch : {2, 31, 33, 70}) {
    std::vector<int> tiles(static_cast<std::size_t>(batch));
    for (int& each : tiles) each = random() % 4 == 0 ? 0 : static_cast<int>(random() % 40);
    expect_shared(tiles, 1 + static_cast<int>(random() % 3), 1 + static_cast<int>(random() % 40),
                  1);
    expect_shared(tiles, 4, 2 + 2 * static_cast<int>(random() % 20), 1, 2);
  }
}

}  // namespace
}  // namespace attnforge
