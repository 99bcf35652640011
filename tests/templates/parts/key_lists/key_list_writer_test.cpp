// key_list_writer_test.cpp - lists of groups of keys under a block mask, on threads of the host:
// those that the step writes, and those that the blocks of a kernel make for themselves, as of
// every pair by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/pieces/fixed_lengths.cuh"
#include "templates/pieces/window_mask.cuh"
#include "templates/parts/block_mask/list_source.cuh"
#include "templates/parts/key_lists/step_lists.cuh"
// clang-format on

namespace attnforge {
namespace {

struct Params {
  FwdParams fwd;
  KeyListParams lists;
  BlockMaskParams mask;
};

constexpr int kOwnListGroups = 256;  // that a block has memory for

/// Of two heads, as rows of entries, and as what each block is: 0, none of it is seen; 1, all; 2,
/// some.
struct Blocks {
  int q_blocks, kv_blocks;
  std::vector<int> row_begin{0}, columns{}, state{};

  Blocks(int rows, int row_columns, double density) : q_blocks(rows), kv_blocks(row_columns) {
    std::mt19937 random(7);
    for (int row = 0; row < 2 * rows; ++row) {
      for (int column = 0; column < row_columns; ++column) {
        const bool present = row % 5 != 3 && random() % 1000 < density * 1000;
        const int partial = random() % 3 == 0 ? 1 : 0;
        state.push_back(present ? 1 + partial : 0);
        if (present) columns.push_back(column * 2 + partial);
      }
      row_begin.push_back(static_cast<int>(columns.size()));
    }
  }
  int of(int head, int row, int column) const {
    return state[static_cast<std::size_t>((head * q_blocks + row) * kv_blocks + column)];
  }
};

template <int kBlockQ, int kBlockKv, int kBlockM, int kBlockN, bool kLeft>
void expect_what_the_mask_says(int queries, int keys, int window_left, int window_right,
                               double density) {
  constexpr int kGroups = kBlockKv < kBlockN ? kBlockN / kBlockKv : 1;
  constexpr int kGroupKeys = kBlockN / kGroups, kThreads = (kBlockM / 64 + 1) * 128;
  using Window = WindowMask<kLeft>;
  using Step = MakeKeyLists<FixedLengths, BlockSource<kBlockQ, kBlockKv>, kBlockM, kGroups,
                            kGroupKeys, Window>;
  using Own = KeyListWriter<FixedLengths, BlockSource<kBlockQ, kBlockKv, true>, kBlockM, kGroups,
                            kGroupKeys, Window, kThreads, kOwnListGroups>;
  const Blocks blocks(ceil_div(queries, kBlockQ), ceil_div(keys, kBlockKv), density);
  const int m_blocks = ceil_div(queries, kBlockM),
            capacity = round_up(ceil_div(keys, kGroupKeys), kGroups);
  ASSERT_LE(capacity, kOwnListGroups);
  const std::size_t lists = static_cast<std::size_t>(2 * m_blocks),
                    room = static_cast<std::size_t>(capacity);
  std::vector<KeyGroup> written(lists * room), own(lists * kOwnListGroups);
  std::vector<int> counts(lists), own_counts(lists);
  Params params{};
  params.fwd.batch = 1;
  params.fwd.num_heads_q = params.fwd.num_heads_kv = 2;
  params.fwd.seqlen_q = queries;
  params.fwd.seqlen_kv = keys;
  params.fwd.window_left = window_left;
  params.fwd.window_right = window_right;
  params.lists.groups = written.data();
  params.lists.counts = counts.data();
  params.lists.capacity = capacity;
  params.lists.m_blocks = m_blocks;
  params.lists.heads = 2;
  params.lists.batch = 1;
  params.mask.row_begin = blocks.row_begin.data();
  params.mask.columns = blocks.columns.data();
  params.mask.mask_heads = 2;
  params.mask.mask_batch = 1;
  params.mask.q_blocks = blocks.q_blocks;
  test::run_on_host(static_cast<unsigned>(lists), Step::kThreads, [&] { Step::run(params); });
  std::vector<FragmentKeys> fragments(kBlockM / 16);
  std::vector<int> of_warps(Own::kWarps);
  test::run_on_host(static_cast<unsigned>(lists), kThreads, [&] {
    // States lie where the list goes, as in MakeOwnList.
    KeyGroup* const list = own.data() + blockIdx.x * kOwnListGroups;
    const int tiles = Own::write(params, ListPlace(params.lists, static_cast<int>(blockIdx.x)),
                                 reinterpret_cast<u32(&)[kOwnListGroups]>(*list),
                                 reinterpret_cast<FragmentKeys(&)[kBlockM / 16]>(fragments[0]),
                                 reinterpret_cast<int(&)[Own::kWarps]>(of_warps[0]), list);
    if (threadIdx.x == 0) own_counts[blockIdx.x] = tiles;
  });

  const FixedLengths lengths(params, 0);
  for (int list = 0; list < 2 * m_blocks; ++list) {
    const std::size_t at = static_cast<std::size_t>(list);
    ASSERT_EQ(counts[at], own_counts[at]) << list;
    std::vector<KeyGroup> expected;
    for (int group = 0; group * kGroupKeys < keys; ++group) {
      KeyGroup seen{static_cast<u32>(group), 0};
      const int first = group * kGroupKeys, last = first + kGroupKeys - 1;
      for (int f = 0; f < kBlockM / 16; ++f) {
        const int query = list % m_blocks * kBlockM + f * 16;
        const FragmentKeys in = FragmentKeys::of(params.fwd, lengths, query);
        if (query >= queries || first > in.last || (kLeft && last < in.first)) continue;
        const int state = blocks.of(list / m_blocks, query / kBlockQ, first / kBlockKv);
        if (state != 0) seen.rows |= 1u << f;
        if (state == 2) seen.rows |= 1u << (KeyGroup::kMostFragments + f);
        if (state != 0 && (last > in.all_last || (kLeft && first < in.all_first)))
          seen.number |= KeyGroup::kEdge;
      }
      if (seen.rows != 0) expected.push_back(seen);
    }
    ASSERT_EQ(counts[at], ceil_div(static_cast<int>(expected.size()), kGroups)) << list;
    for (std::size_t i = 0; i < static_cast<std::size_t>(counts[at] * kGroups); ++i) {
      const KeyGroup& by_step = written[at * room + i];
      const KeyGroup& by_block = own[at * kOwnListGroups + i];
      ASSERT_EQ(by_step.number, by_block.number) << list << " " << i;
      ASSERT_EQ(by_step.rows, by_block.rows) << list << " " << i;
      if (i < expected.size()) {
        ASSERT_EQ(by_step.number, expected[i].number) << list << " " << i;
        ASSERT_EQ(by_step.rows, expected[i].rows) << list << " " << i;
      } else {
        ASSERT_EQ(by_step.rows, 0u) << "what fills up the last tile";
      }
    }
  }
}

TEST(ListsOfBlocks, AreThoseOfEveryPairForTilesOfSeveralBlocks) {
  expect_what_the_mask_says<16, 16, 64, 80, false>(150, 1000, kOpenWindow, kOpenWindow, 0.3);
  expect_what_the_mask_says<16, 16, 128, 128, true>(300, 700, 200, 0, 0.6);
}

TEST(ListsOfBlocks, AreThoseOfEveryPairForBlocksOfSeveralTiles) {
  expect_what_the_mask_says<128, 128, 64, 64, false>(500, 900, kOpenWindow, 0, 0.5);
  expect_what_the_mask_says<128, 64, 192, 64, true>(500, 900, 100, 40, 0.9);
}

TEST(ListsOfBlocks, MayBeAsLongAsBlocksHaveRoomFor) {
  expect_what_the_mask_says<64, 16, 64, 128, false>(64, 16 * kOwnListGroups, kOpenWindow,
                                                    kOpenWindow, 1.0);
  expect_what_the_mask_says<64, 64, 64, 64, false>(100, 300, kOpenWindow, kOpenWindow, 0.0);
}

}  // namespace
}  // namespace attnforge
