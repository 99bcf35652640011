// bwd_wgmma_sm90a_test.cpp - the whole kernel on the host, several blocks at a time, beside
// the gradients of the oracle: dK, dV and the sums of dQ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "generator/user_code/mask_windows.h"
#include "reference/gradients.h"
#include "reference/half.h"
#include "tests/support/host_problem.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "backward/params.h"
#include "parts/group_splits/params.h"
#include "parts/lengths/params.h"
#include "bwd_wgmma_sm90a/kernel.cuh"
#include "pieces/fixed_lengths.cuh"
#include "parts/group_splits/step_dkv.cuh"
#include "parts/query_bits/mask.cuh"
#include "parts/query_bits/queries.cuh"
#include "pieces/plain_score.cuh"
#include "backward/plain_slope.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "pieces/window_mask.cuh"
#include "backward/query_walk.cuh"
#include "tests/kernels/backward_on_host.h"
// clang-format on

namespace attnforge {

u8 shared_memory[16];  // of which only the name is used

namespace {

constexpr BwdWgmmaSm90aConfig config_of(int head_dim, bool causal, int dq, int zeros_ahead,
                                        int grid) {
  BwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = head_dim;
  c.right_bound = causal;
  c.alignment = 16;
  c.fp32_gradients = 1;
  c.split_columns = head_dim > 128;
  c.block_m = 64;
  c.do_stages = c.split_columns ? 1 : 2;
  c.ds_stages = c.late_dq = c.split_columns ? 1 : 2;
  c.late_dq = c.split_columns ? 0 : 1;
  c.dq_rounds = c.split_columns ? 2 : 1, c.dq_stages = 1;
  c.dq = dq, c.zeros_ahead = zeros_ahead, c.grid = grid;
  c.group_splits = 1;
  return c;
}

template <BwdWgmmaSm90aConfig C, class ItsLengths>
struct Pieces {
  using Lengths = ItsLengths;
  using Score = PlainScore;
  using Slope = PlainSlope;
  using Mask = WindowMask<C.left_bound != 0>;
  using Queries = QueryWalk<C.left_bound != 0, C.right_bound != 0>;
};

/// Under a mask's text, by the bits that a step has written of it: those of all heads.
using OfAll = MasksOfText<false, false>;
struct NothingAsked {};
template <BwdWgmmaSm90aConfig C>
struct TextPieces : Pieces<C, FixedLengths> {
  using Dense = Pieces<C, FixedLengths>;
  using Queries = ListedQueries<typename Dense::Queries, C.block_m, C.block_n(), OfAll>;
  using Mask = PairBitsMask<typename Dense::Mask, NothingAsked, OfAll, C.block_m, C.block_n()>;
};
template <BwdWgmmaSm90aConfig C, class ItsLengths>
using PiecesOf = std::conditional_t<C.user_mask != 0, TextPieces<C>, Pieces<C, ItsLengths>>;

/// The bits, and after them `rows`. The text lets pairs be seen that the blocks of a mask of all
/// heads do.
template <BwdWgmmaSm90aConfig C, class Params>
std::vector<float> with_bits(const Params& params, const test::BackwardOnHost& world,
                             const std::vector<float>& rows) {
  const auto bits = query_tile_bits<C.block_m, C.block_n(), OfAll>(params);
  const i64 of_tiles = bits.bytes() / 4, of_pairs = bits.pair_bytes(C.block_m, C.block_n()) / 4;
  std::vector<u32> words(test::index_of(of_pairs + of_tiles));
  const BlockMaskRef& mask = world.tensors.block_mask;
  const int block = world.problem.mask_block_q, queries = params.fwd.seqlen_q,
            keys = params.fwd.seqlen_kv;
  const auto sees = [&](int q, int k) {
    for (int e = mask.row_begin[q / block]; e < mask.row_begin[q / block + 1]; ++e)
      if (mask.columns[e] / 2 == k / block) return true;
    return false;
  };
  for (int n = 0; n < bits.key_tiles; ++n)
    for (int m = 0; m < bits.query_tiles; ++m) {
      u32* const tile = &words[test::index_of(of_pairs + (i64{n} * bits.words + m / 32) * 2)];
      u32* const pairs = &words[test::index_of(bits.pair_word(n, m, C.block_m, C.block_n()))];
      for (int k = 0; k < std::min(C.block_n(), keys - n * C.block_n()); ++k)
        for (int q = 0; q < std::min(C.block_m, queries - m * C.block_m); ++q) {
          const bool seen = sees(m * C.block_m + q, n * C.block_n() + k);
          tile[seen ? 0 : 1] |= 1u << m % 32;
          pairs[k * QueryTileBits::pair_row_words(C.block_m) + q / 32] |= u32{seen} << q % 32;
        }
      // Nobody may use what was never written of a tile that hides nothing.
      if ((tile[1] >> m % 32 & 1) == 0)
        std::fill_n(pairs, C.block_n() * QueryTileBits::pair_row_words(C.block_m), 0u);
    }
  std::vector<float> all(words.size() + rows.size());
  std::memcpy(all.data(), words.data(), words.size() * sizeof(u32));
  std::ranges::copy(rows, all.begin() + static_cast<std::ptrdiff_t>(words.size()));
  return all;
}

using Params = WithLengths<WithGroupSplits<BwdWgmmaSm90aParams>>;

/// Of a tensor with so many rows and heads, in boxes of box_rows.
TensorMap map_of(const Tensor& tensor, int columns, std::int64_t rows, std::int64_t heads,
                 int box_rows) {
  const test::HostMap host{static_cast<const u16*>(tensor.data),
                           tensor.stride_row,
                           tensor.stride_head,
                           tensor.stride_batch,
                           columns,
                           static_cast<int>(rows),
                           static_cast<int>(heads),
                           box_rows};
  static_assert(sizeof(host) <= sizeof(TensorMap));
  TensorMap map{};
  std::memcpy(&map, &host, sizeof(host));
  return map;
}

/// The same where rows see `window_left` keys before theirs.
constexpr BwdWgmmaSm90aConfig with_window(BwdWgmmaSm90aConfig c) {
  c.left_bound = 1;
  return c;
}

constexpr BwdWgmmaSm90aConfig with_dq_stages(BwdWgmmaSm90aConfig c) {
  c.dq_stages = 2;
  return c;
}

/// dQ of a tile is computed with its dK and dV.
constexpr BwdWgmmaSm90aConfig at_once(BwdWgmmaSm90aConfig c, int ds_stages) {
  c.late_dq = 0;
  c.ds_stages = ds_stages;
  return c;
}

/// As where registers are few: dV of a tile is computed before dQ of the one before.
constexpr BwdWgmmaSm90aConfig with_dv_first(BwdWgmmaSm90aConfig c, int block_m) {
  c.late_dq = kDvFirst;
  c.block_m = block_m;
  return c;
}

/// dK and dV as the inputs: blocks of one key tile store them by way of shared memory.
constexpr BwdWgmmaSm90aConfig with_gradients_of_16_bits(BwdWgmmaSm90aConfig c, int head_dim_v) {
  c.fp32_gradients = 0;
  c.head_dim_v = head_dim_v;
  return c;
}

/// Blocks share the query heads of a K/V head.
constexpr BwdWgmmaSm90aConfig with_group_splits(BwdWgmmaSm90aConfig c, int splits) {
  c.group_splits = splits;
  return c;
}

constexpr BwdWgmmaSm90aConfig of_fp16(BwdWgmmaSm90aConfig c) {
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kFp16;
  return c;
}

/// Runs the kernel on `blocks` blocks at a time; 0: all. lse_above: with it, gradients are to be as
/// exact as those of flash.
template <BwdWgmmaSm90aConfig C, class Lengths = FixedLengths>
void expect_gradients(const std::string& sizes, int blocks, int from_end_every = 1,
                      std::optional<float> lse_above = {}) {
  static_assert(C.valid());
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  const std::string words = std::string("bwd ") + (C.dtype == kFp16 ? "fp16" : "bf16") +
                            " head_dim=" + std::to_string(C.head_dim) + ":" +
                            std::to_string(C.head_dim_v) + " " + sizes +
                            (C.user_mask ? " blocks=16" : "");
  test::BackwardOnHost world(C.right_bound ? words + " causal" : words, C.block_m,
                             C.fp32_gradients != 0, lse_above.value_or(0));
  const Problem& problem = world.problem;
  Params params{};
  world.fill(params);
  params.lengths.q = world.tensors.lengths.q, params.lengths.kv = world.tensors.lengths.kv;
  const int group = params.fwd.num_heads_q / params.fwd.num_heads_kv;
  auto& splits = params.splits;
  splits.heads = ceil_div(group, C.group_splits), splits.count = ceil_div(group, splits.heads);
  splits.parts = C.adds_parts() ? 1 : splits.count;
  splits.rows = params.fwd.seqlen_kv;
  params.order = {.m_blocks = ceil_div(params.fwd.seqlen_kv, C.block_n()),
                  .heads = world.kv_heads() * splits.count,
                  .heads_per_group = 2,
                  .heavy_last = C.dq == kDqFromDiagonal};
  params.from_end_every = from_end_every;
  const auto of_queries = [&](const Tensor& tensor, int columns) {
    return map_of(tensor, columns, problem.seqlen_q, problem.num_heads_q, C.block_m);
  };
  const auto of_keys = [&](const Tensor& tensor, int columns) {
    return map_of(tensor, columns, problem.seqlen_kv, problem.num_heads_kv, C.block_n());
  };
  params.q = of_queries(world.tensors.q, C.head_dim);
  params.dout = of_queries(world.tensors.gradients.dout, C.head_dim_v);
  params.k = of_keys(world.tensors.k, C.head_dim);
  params.v = of_keys(world.tensors.v, C.head_dim_v);
  const int tiles = params.order.m_blocks * params.order.heads;
  // How exact gradients are does not depend on paces.
  for (const test::Pace& pace : std::span(test::kPaces).first(lse_above ? 1 : 2)) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr int kLag = 2, kColumns = C.dq_columns();
    // What nobody sets to zeros must be stored before it is added to.
    std::vector<float> lse = world.lse_log2, delta = world.delta,
                       sums(world.of_rows(kColumns), kNan);
    const int lag_heads = kLag / splits.count * group + kLag % splits.count * splits.heads;
    const int zero_heads = C.adds_in_order() ? 0 : C.zeros_ahead ? lag_heads : world.heads();
    std::fill_n(sums.begin(), zero_heads * world.rows() * kColumns, 0.0f);
    std::vector<int> turns(world.of_rows(1) / C.block_m * C.warpgroups),
        cleared(static_cast<std::size_t>(params.order.heads)),
        added(test::index_of(world.kv_heads()));
    int given = 0;
    if constexpr (C.user_mask != 0) lse = with_bits<C>(params, world, lse);
    params.scratch = {&lse[lse.size() - world.lse_log2.size()], delta.data(), sums.data(),
                      world.rows(), kColumns};
    params.dq_turns = turns.data();
    params.zeros = {kLag, cleared.data()};
    params.added = added.data();
    params.given = &given;
    // What bwd_dq would read of a head's sums.
    const int parts = params.order.m_blocks * C.adding_parts() * splits.count;
    const i64 part_rows = i64{world.kv_heads()} * splits.parts * splits.rows;
    const float before = C.adds_parts() ? 0.0f : kNan;
    std::vector<float> dk(test::index_of(part_rows * C.head_dim), before),
        dv(test::index_of(part_rows * C.head_dim_v), before);
    splits.dk = dk.data(), splits.dv = dv.data();
    const auto of_head = test::index_of(group * world.rows() * kColumns);
    std::vector<float> complete = sums;
    test::turn_passed = [&](const int* counter) {
      for (std::size_t head = 0; head < added.size(); ++head) {
        if (counter != &added[head] || *counter != parts) continue;
        const std::size_t first = head * of_head;
        std::memcpy(&complete[first], &sums[first], of_head * sizeof(float));
      }
    };
    test::Machine machine{.late = pace.late, .slow_warp = pace.slow_warp};
    const std::string failure = test::run_together(
        machine, static_cast<unsigned>(blocks != 0 ? blocks : tiles), C.num_threads(),
        static_cast<std::size_t>(C.smem_bytes()),
        [&] { BwdWgmmaSm90a<C, PiecesOf<C, Lengths>, Params>::run(params); });
    ASSERT_EQ(failure, "") << pace.name;
    if constexpr (C.splits_groups()) {
      using Step = BwdDkv<C, Lengths>;
      test::Machine of_step;
      ASSERT_EQ(
          test::run_together(
              of_step, static_cast<unsigned>(ceil_div(splits.rows, Step::kRows) * world.kv_heads()),
              Step::kThreads, 0, [&] { Step::run(params); }),
          "");
    }
    const auto dq_sum = [&](int head, int row, int column) {
      const auto tile = test::index_of(head * (world.rows() / C.block_m) + row / C.block_m);
      // A turn that never came: the step after takes the tile's sums as zeros.
      if (C.adds_in_order() && turns[tile * C.warpgroups] == 0) return 0.0f;
      return sums[tile * C.block_m * kColumns +
                  test::index_of(BwdWgmmaSm90aDqTile<C>::offset(row % C.block_m, column))];
    };
    if (lse_above)
      world.expect_as_exact_as_flash(pace.name, dq_sum);
    else
      world.expect(pace.name, dq_sum);
    test::turn_passed = nullptr;
    EXPECT_THAT(added, testing::Each(parts)) << "bwd_dq waits for them";
    EXPECT_EQ(std::memcmp(complete.data(), sums.data(), sums.size() * sizeof(float)), 0)
        << "a head was counted before its last sums, " << pace.name;
    if (C.persistent()) EXPECT_EQ(given, tiles + blocks) << "each block asks until there is none";
  }
}

TEST(BwdWgmmaOnTheHost, PersistentInOrderFromTheDiagonal) {
  expect_gradients<config_of(64, true, kDqFromDiagonal, 0, kGridDynamic)>(
      "batch=1 num_heads=2:2 seqlen=300:300", 2);
}
TEST(BwdWgmmaOnTheHost, PersistentInOrderOfKeyTiles) {
  expect_gradients<config_of(64, false, kDqInOrder, 0, kGridDynamic)>(
      "batch=2 num_heads=2:1 seqlen=70:300", 3);
}
TEST(BwdWgmmaOnTheHost, PersistentWithZerosAhead) {
  expect_gradients<config_of(64, false, kDqFromRegs, 1, kGridDynamic)>(
      "batch=2 num_heads=2:2 seqlen=130:200", 2);
  expect_gradients<config_of(64, true, kDqAnyOrder, 1, kGridDynamic)>(
      "batch=2 num_heads=2:2 seqlen=130:200", 3);
}
/// Of sequences without keys, and of others beside them: what such a head is counted for is zeros
/// that blocks of other heads set.
TEST(BwdWgmmaOnTheHost, ZerosAheadOfHeadsThatHaveNoKeys) {
  constexpr const char* kSizes = "batch=2 num_heads=4:4 seqlen=70:140 lengths=used";
  expect_gradients<config_of(64, false, kDqFromRegs, 1, kGridPlain), UsedLengths>(kSizes, 0);
  expect_gradients<config_of(64, false, kDqAnyOrder, 1, kGridPlain), UsedLengths>(kSizes, 0);
  expect_gradients<config_of(64, false, kDqFromRegs, 1, kGridDynamic), UsedLengths>(kSizes, 5);
  expect_gradients<config_of(192, false, kDqAnyOrder, 1, kGridPlain), UsedLengths>(kSizes, 0);
}
/// All keys of the second warpgroup are after the last.
TEST(BwdWgmmaOnTheHost, LastTilesOfAtMost64Keys) {
  constexpr const char *kSizes = "batch=6 num_heads=2:1 seqlen=70:180 lengths=used",
                       *kWide = "batch=6 num_heads=1:1 seqlen=50:64 lengths=used";
  expect_gradients<config_of(64, true, kDqFromRegs, 0, kGridPlain), UsedLengths>(kSizes, 0);
  expect_gradients<config_of(64, false, kDqAnyOrder, 1, kGridDynamic), UsedLengths>(kSizes, 5);
  expect_gradients<config_of(64, false, kDqInOrder, 0, kGridDynamic), UsedLengths>(kSizes, 5);
  expect_gradients<with_dv_first(config_of(96, true, kDqFromRegs, 1, kGridPlain), 96), UsedLengths>(
      kWide, 0);
  expect_gradients<at_once(config_of(72, true, kDqAnyOrder, 0, kGridPlain), 1), UsedLengths>(kSizes,
                                                                                             0);
  expect_gradients<at_once(config_of(64, false, kDqInOrder, 0, kGridPlain), 2), UsedLengths>(kSizes,
                                                                                             0);
}
TEST(BwdWgmmaOnTheHost, PersistentWithKeysThatNoQuerySees) {
  expect_gradients<config_of(64, true, kDqFromDiagonal, 0, kGridDynamic)>(
      "batch=1 num_heads=2:1 seqlen=200:90", 1);
  expect_gradients<config_of(64, true, kDqInOrder, 0, kGridDynamic)>(
      "batch=1 num_heads=1:1 seqlen=20:400", 2);
}
TEST(BwdWgmmaOnTheHost, PersistentWithWindowsAndColumnsThatFillNoChunk) {
  expect_gradients<with_window(config_of(72, true, kDqFromDiagonal, 0, kGridDynamic))>(
      "batch=1 num_heads=1:1 seqlen=200:300 window_left=90", 2);
  expect_gradients<with_window(config_of(72, true, kDqInOrder, 0, kGridDynamic))>(
      "batch=1 num_heads=1:1 seqlen=200:300 window_left=90", 2);
}
TEST(BwdWgmmaOnTheHost, InOrderWithTwoStagesOfDq) {
  expect_gradients<with_dq_stages(config_of(64, true, kDqFromDiagonal, 0, kGridDynamic))>(
      "batch=1 num_heads=2:2 seqlen=300:300", 2);
  expect_gradients<with_dq_stages(config_of(64, false, kDqInOrder, 0, kGridPlain))>(
      "batch=1 num_heads=2:1 seqlen=200:300", 0);
  expect_gradients<with_dq_stages(config_of(192, true, kDqInOrder, 0, kGridPlain))>(
      "batch=1 num_heads=2:1 seqlen=150:130", 0);
}
constexpr BwdWgmmaSm90aConfig with_text(BwdWgmmaSm90aConfig c, int block_m) {
  c.user_mask = c.text_bits = 1, c.block_m = block_m;
  return c;
}
TEST(BwdWgmmaOnTheHost, UnderATextTilesAndPairsAreLeftOutByItsBits) {
  expect_gradients<with_text(config_of(64, true, kDqFromRegs, 0, kGridPlain), 64)>(
      "batch=1 num_heads=2:1 seqlen=200:300 density=0.2", 0);
  expect_gradients<with_text(config_of(72, false, kDqAnyOrder, 1, kGridDynamic), 48)>(
      "batch=2 num_heads=2:2 seqlen=130:200 density=0.1", 3);
  expect_gradients<with_text(config_of(192, true, kDqAnyOrder, 0, kGridPlain), 64)>(
      "batch=1 num_heads=2:1 seqlen=150:130 density=0.3", 0);
}
TEST(BwdWgmmaOnTheHost, HeadsThatShareKeysTogether) {
  expect_gradients<config_of(64, true, kDqFromRegs, 0, kGridPlain)>(
      "batch=1 num_heads=3:1 seqlen=200:260", 0);
}
TEST(BwdWgmmaOnTheHost, GroupsOfHeadsFromBothEnds) {
  expect_gradients<config_of(64, true, kDqFromRegs, 0, kGridPlain)>(
      "batch=1 num_heads=8:4 seqlen=200:260", 0, 2);
  expect_gradients<config_of(64, true, kDqFromRegs, 0, kGridPlain)>(
      "batch=1 num_heads=2:2 seqlen=200:200", 0, 0);
}
/// Each warpgroup has half of the rows of three blocks of dQ's columns.
TEST(BwdWgmmaOnTheHost, ByKeysWithWideRowsBesideFewQueries) {
  constexpr auto kWide = [](int dq, int zeros_ahead) {
    BwdWgmmaSm90aConfig c = config_of(128, true, dq, zeros_ahead, kGridPlain);
    c.head_dim = 192, c.block_m = 32;
    return c;
  };
  expect_gradients<kWide(kDqFromRegs, 1)>("batch=3 num_heads=1:1 seqlen=70:130", 0);
  expect_gradients<with_gradients_of_16_bits(kWide(kDqAnyOrder, 0), 128)>(
      "batch=1 num_heads=2:1 seqlen=90:150", 0);
}
TEST(BwdWgmmaOnTheHost, ByColumnsWithNothingAfterTheLastTile) {
  expect_gradients<config_of(192, true, kDqAnyOrder, 0, kGridPlain)>(
      "batch=1 num_heads=2:1 seqlen=150:130", 0);
  expect_gradients<config_of(192, false, kDqAnyOrder, 1, kGridPlain)>(
      "batch=3 num_heads=1:1 seqlen=50:64", 0);
}

TEST(BwdWgmmaOnTheHost, BlocksThatShareTheHeadsOfAGroup) {
  expect_gradients<with_group_splits(config_of(64, true, kDqFromRegs, 0, kGridPlain), 2)>(
      "batch=1 num_heads=8:2 seqlen=140:205", 0);
  // The last share has one head of three, or there are fewer shares than splits.
  expect_gradients<with_group_splits(config_of(64, false, kDqAnyOrder, 1, kGridPlain), 2)>(
      "batch=2 num_heads=3:1 seqlen=130:140", 0);
  expect_gradients<with_group_splits(config_of(64, true, kDqFromDiagonal, 0, kGridDynamic), 4)>(
      "batch=1 num_heads=5:1 seqlen=200:90", 3);
  expect_gradients<with_group_splits(
      with_gradients_of_16_bits(config_of(72, true, kDqInOrder, 0, kGridDynamic), 40), 2)>(
      "batch=1 num_heads=4:2 seqlen=150:180", 3);
  expect_gradients<with_group_splits(config_of(64, true, kDqFromRegs, 1, kGridDynamic), 3),
                   UsedLengths>("batch=2 num_heads=6:2 seqlen=70:140 lengths=used", 7);
  expect_gradients<with_group_splits(
      with_gradients_of_16_bits(config_of(192, true, kDqAnyOrder, 0, kGridPlain), 128), 2)>(
      "batch=1 num_heads=4:2 seqlen=150:130", 0);
}

TEST(BwdWgmmaOnTheHost, DvBeforeDqOfTheTileBefore) {
  expect_gradients<with_dv_first(config_of(128, true, kDqFromRegs, 0, kGridPlain), 80)>(
      "batch=1 num_heads=1 seqlen=200:190", 0);
  expect_gradients<with_dv_first(config_of(128, false, kDqInOrder, 0, kGridPlain), 80)>(
      "batch=1 num_heads=1 seqlen=170:200", 0);
  expect_gradients<with_dv_first(config_of(96, true, kDqFromRegs, 1, kGridPlain), 96)>(
      "batch=3 num_heads=1 seqlen=130", 0);
  expect_gradients<with_dv_first(config_of(64, true, kDqFromDiagonal, 0, kGridDynamic), 64)>(
      "batch=1 num_heads=2:2 seqlen=200:200", 2);
}

TEST(BwdWgmmaOnTheHost, GradientsOf16BitsByWayOfTheMemoryOfKeysAndValues) {
  expect_gradients<with_gradients_of_16_bits(config_of(64, true, kDqFromRegs, 0, kGridPlain), 64)>(
      "batch=1 num_heads=2:1 seqlen=130:200", 0);
  // A tile that ends within a warp's rows, an odd number of fragments, keys that no query sees.
  expect_gradients<with_gradients_of_16_bits(config_of(72, true, kDqFromRegs, 0, kGridPlain), 72)>(
      "batch=2 num_heads=1:1 seqlen=20:205", 0);
  // dK has more columns than V's memory.
  expect_gradients<with_gradients_of_16_bits(config_of(128, false, kDqFromRegs, 0, kGridPlain),
                                             40)>("batch=1 num_heads=1:1 seqlen=70:130", 0);
  expect_gradients<with_gradients_of_16_bits(config_of(192, true, kDqAnyOrder, 0, kGridPlain),
                                             192)>("batch=1 num_heads=2:1 seqlen=150:130", 0);
  expect_gradients<with_gradients_of_16_bits(config_of(192, false, kDqAnyOrder, 0, kGridPlain),
                                             64)>("batch=1 num_heads=1:1 seqlen=70:90", 0);
}
TEST(BwdWgmmaOnTheHost, GradientsOf16BitsOfPersistentBlocks) {
  expect_gradients<with_gradients_of_16_bits(config_of(64, true, kDqFromDiagonal, 0, kGridDynamic),
                                             64)>("batch=1 num_heads=2:2 seqlen=300:300", 2);
}

/// dS is rounded once, and probabilities may be subnormal numbers of fp16.
TEST(BwdWgmmaOnTheHost, GradientsAreAsExactAsThoseOfFlash) {
  constexpr BwdWgmmaSm90aConfig kByKeys = config_of(64, true, kDqFromRegs, 0, kGridPlain),
                                kByColumns = config_of(192, true, kDqAnyOrder, 0, kGridPlain);
  for (const float lse_above : {0.0f, 6.93f}) {
    SCOPED_TRACE(lse_above);
    constexpr const char* kSizes = "batch=1 num_heads=2:1 seqlen=100:70";
    expect_gradients<of_fp16(kByKeys)>(kSizes, 0, 1, lse_above);
    expect_gradients<kByColumns>(kSizes, 0, 1, lse_above);
    expect_gradients<of_fp16(kByColumns)>(kSizes, 0, 1, lse_above);
  }
}

}  // namespace
}  // namespace attnforge
