// window_mask_test.cpp - which scores of a lane's fragments a window hides, beside each pair by
// itself: bits of a lane's keys for one fragment of rows, and one by one for several.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "reference/half.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "base_params.h"
#include "pieces/fixed_lengths.cuh"
#include "pieces/window_mask.cuh"
#include "tile/query_tile.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kFragments = 20;  // of 8 keys: more than a word of bits

template <bool kLeft, class Array>
void expect_hidden(int seqlen_q, int seqlen_kv, int left, int right) {
  struct Params {
    FwdParams fwd{};
  } params;
  FwdParams& p = params.fwd;
  p.batch = p.num_heads_q = p.num_heads_kv = 1;
  p.seqlen_q = seqlen_q, p.seqlen_kv = seqlen_kv;
  p.window_left = left, p.window_right = right;
  const QueryTile<Params, 1, FixedLengths> tile(params, 0, 0, 0, FixedLengths(params, 0));
  constexpr int kRowFragments = sizeof(Array) / sizeof(float[kFragments][4]);
  for (const int first_key : {0, 8, 104})
    for (unsigned lane = 0; lane < 32; ++lane) {
      test::thread_index.x = lane;
      Array s{};
      const int row = 16 + MmaFragment::row(static_cast<int>(lane));
      WindowMask<kLeft>::apply(FragmentScores<Array>{s, row, first_key}, tile);
      std::array<float, sizeof(Array) / sizeof(float)> all;
      std::memcpy(all.data(), &s, sizeof(s));
      for (int i = 0; i < kRowFragments * kFragments * 4; ++i) {
        const int of_row = row + i / (4 * kFragments) * 16 + i % 4 / 2 * 8;
        const int key = first_key + i / 4 % kFragments * 8 +
                        MmaFragment::column(static_cast<int>(lane)) + i % 2;
        const int position = of_row + seqlen_kv - seqlen_q;
        const bool hidden = key >= seqlen_kv || key > position + right ||
                            (kLeft && key < position - left);
        EXPECT_EQ(std::isinf(all[static_cast<std::size_t>(i)]), hidden)
            << "row " << of_row << ", key " << key << ", lane " << lane;
      }
    }
  test::thread_index.x = 0;
}

using OneFragment = float[kFragments][4];
using TwoFragments = float[2][kFragments][4];

TEST(WindowMaskOfFragments, HidesWhatARowDoesNotSee) {
  expect_hidden<false, OneFragment>(64, 101, kOpenWindow, 0);
  expect_hidden<false, OneFragment>(64, 150, kOpenWindow, kOpenWindow);
  expect_hidden<true, OneFragment>(64, 101, 9, 0);
  expect_hidden<true, OneFragment>(64, 150, 33, 20);
  expect_hidden<false, TwoFragments>(64, 101, kOpenWindow, 0);
  expect_hidden<true, TwoFragments>(64, 101, 9, 5);
}

}  // namespace
}  // namespace attnforge
