// append_kv_test.cpp - how the kernel that appends rows shares out its work, and the kernel itself
// on threads of the host: lengths, pages and rows beside a plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "reference/half.h"
#include "reference/parts/scales.h"
#include "tests/kernels/index_of.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/ops/append_kv/kernel.cuh"
// clang-format on

namespace attnforge {
namespace {

using test::index_of;

TEST(AppendShape, PartsOfARowCoverEachElementOnce) {
  for (const int dtype : {kFp32, kBf16}) {
    for (const int head_dim : {8, 40, 64, 72, 128, 512}) {
      for (const int rope : {kNoRope, kRopeInterleaved, kRopeHalf}) {
        for (int rope_dim = 8; rope_dim <= (rope == kNoRope ? 8 : head_dim); rope_dim += 8) {
          const AppendShape shape{dtype, head_dim, head_dim, rope, rope == kNoRope ? 0 : rope_dim};
          std::vector<int> seen(static_cast<std::size_t>(head_dim));
          std::vector<int> turned(static_cast<std::size_t>(shape.pairs()));
          for (int i = 0; i < shape.slices(kMovedK); ++i) {
            const RowSlice slice = shape.slice(i);
            for (const int begin : {slice.first, slice.second}) {
              if (begin < 0) continue;
              EXPECT_EQ(begin % shape.vector(), 0);
              for (int j = 0; j < shape.vector(); ++j) ++seen.at(index_of(begin + j));
            }
            for (int j = 0; slice.table >= 0 && j < shape.vector(); ++j)
              ++turned.at(index_of(slice.table + j));
          }
          EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << head_dim << " " << rope_dim;
          EXPECT_EQ(turned, std::vector<int>(turned.size(), 1)) << head_dim << " " << rope_dim;
        }
      }
    }
  }
}

TEST(AppendShape, RowsThatAreQuantisedLieInOneWarp) {
  for (const int head_dim : {8, 40, 72, 128, 256, 264, 512}) {
    for (const int rope_dim : {0, 8, 16, 24, 64, 512}) {
      if (rope_dim > head_dim) continue;
      const AppendShape shape{kBf16,    head_dim, head_dim, rope_dim == 0 ? kNoRope : kRopeHalf,
                              rope_dim, kInt8,    kInt4,    kScaleToken};
      EXPECT_EQ(shape.rows_fit(), head_dim <= 256 || rope_dim % 16 == 0)
          << head_dim << " " << rope_dim;
      if (!shape.rows_fit()) continue;
      std::vector<int> seen(static_cast<std::size_t>(head_dim)), seen_of_v = seen;
      const auto count = [&](const RowSlice& slice, std::vector<int>& of) {
        for (const int begin : {slice.first, slice.second})
          for (int j = 0; begin >= 0 && j < shape.vector(); ++j) ++of.at(index_of(begin + j));
      };
      for (int i = 0; i < shape.slices(kMovedK); ++i) count(shape.slice(i), seen);
      for (int i = 0; i < shape.slices(kMovedV); ++i)
        count(shape.still_slice(kMovedV, i), seen_of_v);
      EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << head_dim << " " << rope_dim;
      EXPECT_EQ(seen_of_v, seen) << head_dim << " " << rope_dim;
      EXPECT_EQ(shape.columns(kMovedK), 1);
      EXPECT_EQ(32 % shape.lanes(kMovedK), 0);
    }
  }
}

// ---- numbers of 8 and 4 bits ----

/// That of kCode nearest to x times the inverse of a scale, as a kernel has it.
template <int kCode>
float quantised_on_the_device(float x, float scale) {
  const u32 code = narrow4<kCode>(x * Scale(scale).inverse, 0.0f, 0.0f, 0.0f);
  return load_element(static_cast<DType>(kCode), &code, 0);
}

/// Each pattern of 16 bits, and scales from the smallest to the largest.
template <int kCode, int kDtype>
void expect_numbers() {
  std::mt19937 random(1);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> scales = {0.0f,   1.0f,  -3.0f,     1.0f / 127,
                               1e-45f, 3e38f, kInfinity, 0x1.fffffep-9f};
  for (int i = 0; i < 40; ++i)
    scales.push_back(
        std::ldexp(1.0f + float(random() % (1 << 23)) * 0x1p-23f, int(random() % 60) - 40));
  for (int i = 0; i < 20; ++i)
    scales.push_back(
        std::ldexp(1.0f + float(random() % (1 << 23)) * 0x1p-23f, int(random() % 254) - 126));
  Problem problem;
  problem.kv_scale = KvScale::kTensor;
  constexpr auto kFormat = static_cast<DType>(kCode);
  for (float& scale : scales) {
    const u32 first = random() % 13;
    for (u32 bits = first; bits < 65536; bits += 13) {
      const float x = load_element(static_cast<DType>(kDtype), &bits, 0);
      u8 code[2] = {};
      quantise_row(problem, kFormat, std::span(&x, 1), code, 0, &scale);
      const float wanted = load_element(kFormat, code, 0);
      const float got = quantised_on_the_device<kCode>(x, scale);
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got)
                                     : got == wanted && std::signbit(got) == std::signbit(wanted))
          << x << " / " << scale << " is " << got << " in place of " << wanted;
    }
  }
}

/// Those of all floats of 16 bits, whatever the last bit of a GPU's reciprocal is, and the numbers
/// that the largest of them and its half become.
template <int kCode, int kDtype>
void expect_exact_scales() {
  Problem problem;
  problem.kv_scale = KvScale::kToken;
  for (u32 bits = 0; bits < 0x8000; ++bits) {
    const float x = load_element(static_cast<DType>(kDtype), &bits, 0);
    const float row[] = {x, x / 2, -x, -x / 2};
    u8 codes[4] = {};
    float wanted;
    quantise_row(problem, static_cast<DType>(kCode), row, codes, 0, &wanted);
    for (reciprocal_error = -1; reciprocal_error <= 1; ++reciprocal_error) {
      const Scale got = Scale::of_largest<kCode>(x);
      const float inverse = Scale(wanted).inverse;
      ASSERT_TRUE(std::isnan(wanted) ? std::isnan(got.scale)
                                     : got.scale == wanted && got.inverse == inverse)
          << x << ": " << got.scale << " for " << wanted << ", " << got.inverse << " for "
          << inverse;
      if (std::isnan(wanted)) continue;
      u32 word = narrow4<kCode, true>(row[0] * inverse, row[1] * inverse, row[2] * inverse,
                                      row[3] * inverse);
      for (int i = 0; i < 4; ++i)
        ASSERT_EQ(load_element(static_cast<DType>(kCode), &word, i),
                  load_element(static_cast<DType>(kCode), codes, i))
            << row[i] << " of " << x;
    }
    reciprocal_error = 0;
  }
}

TEST(QuantisedOnTheHost, ScalesAreExact) {
  expect_exact_scales<kInt8, kBf16>(), expect_exact_scales<kInt8, kFp16>();
  expect_exact_scales<kInt4, kBf16>(), expect_exact_scales<kInt4, kFp16>();
  expect_exact_scales<kE4m3, kBf16>(), expect_exact_scales<kE4m3, kFp16>();
  expect_exact_scales<kE5m2, kBf16>(), expect_exact_scales<kE5m2, kFp16>();
}
TEST(QuantisedOnTheHost, NumbersAreRoundedOnce) {
  expect_numbers<kInt8, kBf16>();
  expect_numbers<kInt8, kFp16>();
  expect_numbers<kInt4, kFp16>();
  expect_numbers<kE4m3, kBf16>();
  expect_numbers<kE4m3, kFp16>();
  expect_numbers<kE5m2, kBf16>();
  expect_numbers<kE5m2, kFp16>();
}

// ---- the kernel ----

/// Of strips of 1 << depth_log2 rows a lane.
template <AppendShape kShape>
AppendWork work_of(const AppendParams& p, int depth_log2, int warps_log2) {
  AppendWork work{.depth_log2 = depth_log2, .warps_log2 = warps_log2};
  int end = 0;
  for (const int moved : {kMovedK, kMovedV, kMovedQ}) {
    end += kShape.strips(moved, moved == kMovedQ ? p.num_heads_q : p.num_heads_kv, depth_log2);
    work.strips_end[moved] = end;
  }
  work.blocks = static_cast<u32>(ceil_div(p.tokens, work.tokens_of_block()));
  return work;
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
    p.from[kMovedK] = tensor(k, kHeads, kHeadDim, 0);
    p.from[kMovedV] = tensor(v, kHeads, kHeadDimV, 0);
    p.from[kMovedQ] = tensor(q, kHeadsQ, kHeadDim, 0);
    p.to[kMovedQ] = tensor(rotated_q, kHeadsQ, kHeadDim, 0);
    p.to[kMovedK] = tensor(k_cache, kHeads, kHeadDim, kPageSize);
    p.to[kMovedV] = tensor(v_cache, kHeads, kHeadDimV, kPageSize);
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
    const auto at = index_of(position * kRopeDim / 2 + i);
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

/// `negative`: the sequence whose used length is -2; -1: none.
template <int kRope>
void expect_appended(bool in_place, int negative = -1) {
  constexpr AppendShape kShape{kFp32, kHeadDim, kHeadDimV, kRope, kRope == kNoRope ? 0 : kRopeDim};
  const int heads_q = kRope == kNoRope ? 0 : kHeadsQ;
  World wanted;
  if (negative >= 0) wanted.used[index_of(negative)] = -2;
  const std::vector<int> used = wanted.used;
  for (int b = 0; b < kBatch; ++b) {
    const auto sequence = static_cast<std::size_t>(b);
    for (int token = wanted.ends[sequence]; token < wanted.ends[sequence + 1]; ++token) {
      const int position = wanted.used[sequence] + token - wanted.ends[sequence];
      if (b == negative || position >= kBound) continue;  // later ones of its rows neither
      for (int h = 0; h < heads_q; ++h) {
        const int at = (token * kHeadsQ + h) * kHeadDim;
        std::ranges::copy(rotated(wanted, &wanted.q[static_cast<std::size_t>(at)], kRope, position),
                          wanted.rotated_q.begin() + at);
      }
      const int page = wanted.table[index_of(b * kColumns + position / kPageSize)];
      if (page < 0 || page >= kPages) continue;
      for (int h = 0; h < kHeads; ++h) {
        const int row = (page * kPageSize + position % kPageSize) * kHeads + h;
        const auto at = index_of(token * kHeads + h);
        std::ranges::copy(rotated(wanted, &wanted.k[at * kHeadDim], kRope, position),
                          wanted.k_cache.begin() + row * kHeadDim);
        std::copy_n(wanted.v.begin() + static_cast<std::ptrdiff_t>(at) * kHeadDimV, kHeadDimV,
                    wanted.v_cache.begin() + row * kHeadDimV);
      }
    }
    wanted.after[sequence] = std::min(
        kBound, wanted.used[sequence] + wanted.ends[sequence + 1] - wanted.ends[sequence]);
  }
  struct Sharing {
    int depth_log2, warps_log2;
    unsigned most_blocks;  // fewer than there is work for: each comes again
  };
  for (const Sharing& sharing : {Sharing{0, 3, 99}, {0, 0, 99}, {1, 1, 3}}) {
    World now;
    now.used = used;
    AppendParams p = now.params();
    p.num_heads_q = heads_q;
    if (in_place) p.used_after = now.used.data();
    p.work = work_of<kShape>(p, sharing.depth_log2, sharing.warps_log2);
    test::run_on_host(std::min(p.work.blocks, sharing.most_blocks), AppendShape::kMostThreads,
                      [&] { AppendKv<kShape, 16>::run(p); });
    expect_near(now.k_cache, wanted.k_cache, "k_cache");
    expect_near(now.v_cache, wanted.v_cache, "v_cache");
    expect_near(now.rotated_q, wanted.rotated_q, "rotated_q");
    EXPECT_EQ(in_place ? now.used : now.after, wanted.after);
    EXPECT_EQ(now.counters.arrived, 0u) << "as they were";
    EXPECT_EQ(now.counters.runs, 1u);
    EXPECT_EQ(test::copies_left(), 0u) << "a block ends when all that it asked for has come";
  }
}

TEST(AppendKvOnTheHost, RotatesHalvesOfKAndQAndWritesPages) { expect_appended<kRopeHalf>(true); }
TEST(AppendKvOnTheHost, RotatesNeighbours) { expect_appended<kRopeInterleaved>(false); }
TEST(AppendKvOnTheHost, CopiesWithoutARope) { expect_appended<kNoRope>(true); }
TEST(AppendKvOnTheHost, WritesNothingOfASequenceWithANegativeLength) {
  for (const int sequence : {0, 3}) expect_appended<kRopeHalf>(false, sequence);
}

/// Each block writes lengths itself: apart from those that others read, or its own sequences'.
void expect_padded_rows_appended(int rows, bool in_place, int warps_log2) {
  constexpr AppendShape kShape{kBf16, 16, 8, kNoRope, 0};
  constexpr int kSequences = 5, kCapacity = 7;
  const auto count = index_of(kSequences * rows);
  std::vector<u16> k(count * 16 + 1), v(count * 8 + 1);
  std::iota(k.begin(), k.end(), u16{1});
  std::iota(v.begin(), v.end(), u16{1000});
  std::vector<u16> k_cache(kSequences * kCapacity * 16 + 1),
      v_cache(kSequences * kCapacity * 8 + 1);
  const std::vector<int> used = {6, 0, 3, 7, 1};  // of the first one only one row fits
  std::vector<int> now = used, after(kSequences), wanted_after;
  AppendParams p{};
  p.from[kMovedK] = {k.data() + 1, rows * 16, 16, 16};
  p.from[kMovedV] = {v.data() + 1, rows * 8, 8, 8};
  p.to[kMovedK] = {k_cache.data() + 1, kCapacity * 16, 16, 16};
  p.to[kMovedV] = {v_cache.data() + 1, kCapacity * 8, 8, 8};
  p.used = now.data();
  p.used_after = in_place ? now.data() : after.data();
  p.batch = kSequences;
  p.tokens = kSequences * rows;
  p.seqlen_new = rows;
  p.seqlen_kv = kCapacity;
  p.num_heads_kv = 1;
  p.work = work_of<kShape>(p, 0, warps_log2);
  test::run_on_host(p.work.blocks, AppendShape::kThreads, [&] { AppendKv<kShape, 2>::run(p); });
  std::vector<u16> wanted_k(k_cache.size()), wanted_v(v_cache.size());
  for (int b = 0; b < kSequences; ++b) {
    const int before = used[static_cast<std::size_t>(b)];
    for (int i = 0; i < rows && before + i < kCapacity; ++i) {
      std::copy_n(k.begin() + 1 + (b * rows + i) * 16, 16,
                  wanted_k.begin() + 1 + (b * kCapacity + before + i) * 16);
      std::copy_n(v.begin() + 1 + (b * rows + i) * 8, 8,
                  wanted_v.begin() + 1 + (b * kCapacity + before + i) * 8);
    }
    wanted_after.push_back(std::min(kCapacity, before + rows));
  }
  EXPECT_EQ(k_cache, wanted_k);
  EXPECT_EQ(v_cache, wanted_v);
  EXPECT_EQ(in_place ? now : after, wanted_after);
}

TEST(AppendKvOnTheHost, PaddedRowsGoToAStridedCacheAtAnyAlignment) {
  for (const int warps_log2 : {0, 1}) expect_padded_rows_appended(3, false, warps_log2);
}
TEST(AppendKvOnTheHost, ABlockMovesTheLengthsOfItsSequencesOn) {
  for (const int rows : {1, 2, 4}) expect_padded_rows_appended(rows, true, 1);
}

}  // namespace
}  // namespace attnforge
