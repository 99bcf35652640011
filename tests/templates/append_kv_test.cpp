// append_kv_test.cpp - how the kernel that appends rows shares out its work, and the kernel itself
// on threads of the host: lengths, pages and rows beside a plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/steps/append_kv/kernel.cuh"
// clang-format on

namespace attnforge {
namespace {

TEST(AppendShape, PartsOfARowCoverEachElementOnce) {
  for (const int dtype : {kFp32, kBf16}) {
    for (const int head_dim : {8, 40, 64, 72, 128, 512}) {
      for (const int rope : {kNoRope, kRopeInterleaved, kRopeHalf}) {
        for (int rope_dim = 8; rope_dim <= (rope == kNoRope ? 8 : head_dim); rope_dim += 8) {
          const AppendShape shape{dtype, head_dim, head_dim, rope, rope == kNoRope ? 0 : rope_dim};
          std::vector<int> seen(static_cast<std::size_t>(head_dim));
          std::vector<int> turned(static_cast<std::size_t>(shape.pairs()));
          for (int i = 0; i < shape.parts(); ++i) {
            const RowPart part = shape.part(i);
            for (const int begin : {part.first, part.second}) {
              if (begin < 0) continue;
              EXPECT_EQ(begin % shape.vector(), 0);
              for (int j = 0; j < shape.vector(); ++j)
                ++seen.at(static_cast<std::size_t>(begin + j));
            }
            for (int j = 0; part.table >= 0 && j < shape.vector(); ++j)
              ++turned.at(static_cast<std::size_t>(part.table + j));
          }
          EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << head_dim << " " << rope_dim;
          EXPECT_EQ(turned, std::vector<int>(turned.size(), 1)) << head_dim << " " << rope_dim;
        }
      }
    }
  }
}

// ---- the kernel ----

template <AppendShape kShape>
u32 blocks_of(const AppendParams& p) {
  const int warps = p.tokens * kShape.warps_of_token(p.num_heads_kv, p.num_heads_q);
  return static_cast<u32>(ceil_div(warps, AppendShape::kThreads / 32));
}

constexpr int kBatch = 5, kHeads = 2, kHeadsQ = 4, kHeadDim = 24, kHeadDimV = 8, kRopeDim = 16;
constexpr int kBound = 40, kPageSize = 8, kColumns = kBound / kPageSize, kPages = 30;
constexpr float kPoison = -777;

/// What one call of the kernel works on: fp32, packed rows, caches in pages.
struct World {
  std::vector<int> ends = {0, 3, 3, 4, 21, 22};
  std::vector<int> used = {6, 9, 39, 7, 40};  // at a page's border, at the bound
  std::vector<int> after = std::vector<int>(kBatch, -5);
  std::vector<int> table;
  std::vector<float> k, v, q, k_cache, v_cache, rotated_q, cos, sin;
  AppendCounters counters{};

  World() {
    std::mt19937 random(7);
    std::uniform_real_distribution<float> uniform(-1, 1);
    const auto fill = [&](std::vector<float>& x, int count) {
      x.resize(static_cast<std::size_t>(count));
      for (float& each : x) each = uniform(random);
    };
    const int tokens = ends.back() + 2;  // more rows than sequences have
    fill(k, tokens * kHeads * kHeadDim);
    fill(v, tokens * kHeads * kHeadDimV);
    fill(q, tokens * kHeadsQ * kHeadDim);
    fill(cos, kBound * kRopeDim / 2);
    fill(sin, kBound * kRopeDim / 2);
    k_cache.assign(std::size_t{kPages} * kPageSize * kHeads * kHeadDim, kPoison);
    v_cache.assign(std::size_t{kPages} * kPageSize * kHeads * kHeadDimV, kPoison);
    rotated_q.assign(q.size(), kPoison);
    std::vector<int> pages(kPages);
    std::iota(pages.begin(), pages.end(), 0);
    std::shuffle(pages.begin(), pages.end(), random);
    table.assign(pages.begin(), pages.begin() + kBatch * kColumns);
    table[3 * kColumns + 2] = -1;      // rows 16 to 23 of sequence 3 have no page
    table[3 * kColumns + 1] = kPages;  // and those before one that the pool does not have
  }

  AppendParams params() {
    const auto tensor = [](std::vector<float>& x, int heads, int dim, int rows) {
      return TensorRef{x.data(), i64{rows} * heads * dim, i64{heads} * dim, dim};
    };
    AppendParams p{};
    p.k = tensor(k, kHeads, kHeadDim, 0);
    p.v = tensor(v, kHeads, kHeadDimV, 0);
    p.q = tensor(q, kHeadsQ, kHeadDim, 0);
    p.rotated_q = tensor(rotated_q, kHeadsQ, kHeadDim, 0);
    p.k_cache = tensor(k_cache, kHeads, kHeadDim, kPageSize);
    p.v_cache = tensor(v_cache, kHeads, kHeadDimV, kPageSize);
    p.cu_seqlens = ends.data();
    p.used = used.data();
    p.used_after = after.data();
    p.table = table.data();
    p.table_stride = kColumns;
    p.cos = cos.data();
    p.sin = sin.data();
    p.counters = &counters;
    p.batch = kBatch;
    p.tokens = static_cast<int>(k.size()) / (kHeads * kHeadDim);
    p.seqlen_kv = kBound;
    p.page_size = kPageSize;
    p.num_pages = kPages;
    p.num_heads_kv = kHeads;
    p.num_heads_q = kHeadsQ;
    return p;
  }
};

/// One row as the kernel must write it.
std::vector<float> rotated(const World& world, const float* row, int rope, int position) {
  std::vector<float> out(row, row + kHeadDim);
  for (int i = 0; rope != kNoRope && i < kRopeDim / 2; ++i) {
    const int x = rope == kRopeHalf ? i : 2 * i, y = rope == kRopeHalf ? i + kRopeDim / 2 : x + 1;
    const auto at = static_cast<std::size_t>(position * kRopeDim / 2 + i);
    out[static_cast<std::size_t>(x)] = row[x] * world.cos[at] - row[y] * world.sin[at];
    out[static_cast<std::size_t>(y)] = row[y] * world.cos[at] + row[x] * world.sin[at];
  }
  return out;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& wanted,
                 const char* name) {
  ASSERT_EQ(got.size(), wanted.size());
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], wanted[i], 1e-6) << name << i;
}

template <int kRope>
void expect_appended(bool in_place) {
  constexpr AppendShape kShape{kFp32, kHeadDim, kHeadDimV, kRope, kRope == kNoRope ? 0 : kRopeDim};
  World world;
  AppendParams p = world.params();
  if (in_place) p.used_after = world.used.data();
  if (kRope == kNoRope) p.num_heads_q = 0;
  p.blocks = blocks_of<kShape>(p);
  World wanted;
  for (int b = 0; b < kBatch; ++b) {
    const auto sequence = static_cast<std::size_t>(b);
    for (int token = wanted.ends[sequence]; token < wanted.ends[sequence + 1]; ++token) {
      const int position = wanted.used[sequence] + token - wanted.ends[sequence];
      if (position >= kBound) continue;
      for (int h = 0; h < p.num_heads_q; ++h) {
        const int at = (token * kHeadsQ + h) * kHeadDim;
        std::ranges::copy(rotated(wanted, &wanted.q[static_cast<std::size_t>(at)], kRope, position),
                          wanted.rotated_q.begin() + at);
      }
      const int page = wanted.table[static_cast<std::size_t>(b * kColumns + position / kPageSize)];
      if (page < 0 || page >= kPages) continue;
      for (int h = 0; h < kHeads; ++h) {
        const int row = (page * kPageSize + position % kPageSize) * kHeads + h;
        const auto at = static_cast<std::size_t>(token * kHeads + h);
        std::ranges::copy(rotated(wanted, &wanted.k[at * kHeadDim], kRope, position),
                          wanted.k_cache.begin() + row * kHeadDim);
        std::copy_n(wanted.v.begin() + static_cast<std::ptrdiff_t>(at) * kHeadDimV, kHeadDimV,
                    wanted.v_cache.begin() + row * kHeadDimV);
      }
    }
    wanted.after[sequence] = std::min(
        kBound, wanted.used[sequence] + wanted.ends[sequence + 1] - wanted.ends[sequence]);
  }
  // Fewer blocks than there is work: each comes again.
  for (const unsigned grid : {p.blocks, 3u}) {
    World fresh;
    World& now = grid == p.blocks ? world : fresh;
    if (grid != p.blocks) {
      const u32 blocks = p.blocks;
      const int heads_q = p.num_heads_q;
      p = fresh.params();
      p.blocks = blocks;
      p.num_heads_q = heads_q;
      if (in_place) p.used_after = fresh.used.data();
    }
    test::run_on_host(grid, AppendShape::kThreads, [&] { AppendKv<kShape, 16>::run(p); });
    expect_near(now.k_cache, wanted.k_cache, "k_cache");
    expect_near(now.v_cache, wanted.v_cache, "v_cache");
    expect_near(now.rotated_q, wanted.rotated_q, "rotated_q");
    EXPECT_EQ(in_place ? now.used : now.after, wanted.after);
    EXPECT_EQ(now.counters.arrived, 0u) << "as they were";
    EXPECT_EQ(now.counters.runs, 1u);
  }
}

TEST(AppendKvOnTheHost, RotatesHalvesOfKAndQAndWritesPages) { expect_appended<kRopeHalf>(true); }
TEST(AppendKvOnTheHost, RotatesNeighbours) { expect_appended<kRopeInterleaved>(false); }
TEST(AppendKvOnTheHost, CopiesWithoutARope) { expect_appended<kNoRope>(true); }

TEST(AppendKvOnTheHost, PaddedRowsGoToAStridedCacheAtAnyAlignment) {
  constexpr AppendShape kShape{kBf16, 16, 8, kNoRope, 0};
  constexpr int kRows = 3, kCapacity = 7;
  std::vector<u16> k(2 * kRows * 16 + 1), v(2 * kRows * 8 + 1);
  std::iota(k.begin(), k.end(), u16{1});
  std::iota(v.begin(), v.end(), u16{1000});
  std::vector<u16> k_cache(2 * kCapacity * 16 + 1), v_cache(2 * kCapacity * 8 + 1);
  const std::vector<int> used = {5, 0};  // the third row of the first one does not fit
  AppendParams p{};
  p.k = {k.data() + 1, kRows * 16, 16, 16};
  p.v = {v.data() + 1, kRows * 8, 8, 8};
  p.k_cache = {k_cache.data() + 1, kCapacity * 16, 16, 16};
  p.v_cache = {v_cache.data() + 1, kCapacity * 8, 8, 8};
  p.used = used.data();
  p.batch = 2;
  p.tokens = 2 * kRows;
  p.seqlen_new = kRows;
  p.seqlen_kv = kCapacity;
  p.num_heads_kv = 1;
  p.blocks = blocks_of<kShape>(p);
  test::run_on_host(p.blocks, AppendShape::kThreads, [&] { AppendKv<kShape, 2>::run(p); });
  std::vector<u16> wanted_k(k_cache.size()), wanted_v(v_cache.size());
  for (int b = 0; b < 2; ++b) {
    for (int i = 0; i < kRows; ++i) {
      const int row = used[static_cast<std::size_t>(b)] + i;
      if (row >= kCapacity) continue;
      std::copy_n(k.begin() + 1 + (b * kRows + i) * 16, 16,
                  wanted_k.begin() + 1 + (b * kCapacity + row) * 16);
      std::copy_n(v.begin() + 1 + (b * kRows + i) * 8, 8,
                  wanted_v.begin() + 1 + (b * kCapacity + row) * 8);
    }
  }
  EXPECT_EQ(k_cache, wanted_k);
  EXPECT_EQ(v_cache, wanted_v);
}

}  // namespace
}  // namespace attnforge
