// bwd_kernels_test.cpp - bwd_naive and the steps around other backward kernels on threads of the
// host, beside plain loops in fp64.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "tests/templates/backward/backward_world.h"
#include "parts/lengths/params.h"
#include "parts/sinks/params.h"
#include "pieces/fixed_lengths.cuh"
#include "parts/lengths/packed_lengths.cuh"
#include "oracle/bwd_naive/kernel.cuh"
#include "backward/step_dq.cuh"
#include "backward/step_rows.cuh"
#include "parts/sinks/step_gradient.cuh"
#include "backward/dq_tile.cuh"
#include "backward/key_tile.cuh"
#include "backward/scratch.cuh"
// clang-format on

namespace attnforge {
namespace {

using namespace test;

template <bool kSoftcap, bool kAccumulate>
void expect_gradients() {
  BackwardWorld w(kSoftcap);
  const auto before = [](const std::vector<float>& x) {
    std::vector<double> start(x.size());
    if (kAccumulate) start.assign(x.begin(), x.end());
    return start;
  };
  std::vector<double> dq = before(w.dq), dk = before(w.dk), dv = before(w.dv);
  add_gradients(w, kSoftcap, dq, dk, dv);
  constexpr BwdNaiveConfig kConfig{shape(kSoftcap, kAccumulate), 64};
  test::run_on_host(static_cast<unsigned>(w.blocks()), 64,
                    [&] { BwdNaive<kConfig, HostPieces>::run(w.params); });
  expect_near(w.dq, dq, "dq");
  expect_near(w.dk, dk, "dk");
  expect_near(w.dv, dv, "dv");
}

TEST(BwdNaive, IsTheDerivativeByItsDefinition) {
  expect_gradients<false, false>();
  expect_gradients<true, true>();
}

TEST(BwdNaive, AddsUpAHeadsSink) {
  BackwardWorld w(false);
  WithSinks<BwdNaiveParams> params{w.params, {kSinks}};
  std::vector<float> dsinks = {3, -4}, norms(kHeads);
  params.dsinks = dsinks.data(), params.dsink_norms = norms.data();
  constexpr BwdNaiveConfig kConfig{shape(false, true, true), 64};
  test::run_on_host(static_cast<unsigned>(w.blocks() + kHeads), 64,
                    [&] { BwdNaive<kConfig, HostPieces, WithSinks<BwdNaiveParams>>::run(params); });
  const std::vector<double> expected = sink_gradients(w);
  EXPECT_NEAR(dsinks[0], 3 + expected[0], 1e-4);
  EXPECT_NEAR(dsinks[1], -4 + expected[1], 1e-4);
  EXPECT_GT(norms[0], std::abs(expected[0]));
}

TEST(BwdNaive, ComputesTheRowsOfListsAndTheirNorms) {
  BackwardWorld w(false);
  std::vector<double> dq(w.dq.size()), dk(w.dk.size()), dv(w.dv.size());
  add_gradients(w, false, dq, dk, dv);
  std::vector<ListedRow> queries, keys;
  for (int i = 0; i < 8; ++i) queries.push_back({1, (5 * i + 3) % kQueries});
  for (int i = 0; i < 16; ++i) keys.push_back({i / 8, (3 * i + 1) % kKeys});
  std::vector<float> to_q(kHeads * 8 * kDim), to_k(kHeadsKv * 16 * kDim),
      to_v(kHeadsKv * 16 * kDimV), norms_q(kHeads * 8), norms_k(kHeadsKv * 16),
      norms_v(kHeadsKv * 16);
  BwdNaiveParams& p = w.params;
  p.dq = {to_q.data(), 0, kDim, 8 * kDim};
  p.dk = {to_k.data(), 0, kDim, 16 * kDim};
  p.dv = {to_v.data(), 0, kDimV, 16 * kDimV};
  p.queries = queries.data(), p.num_queries = 8;
  p.keys = keys.data(), p.num_keys = 16;
  p.dq_norms = norms_q.data(), p.dk_norms = norms_k.data(), p.dv_norms = norms_v.data();
  p.query_blocks = kHeads, p.row_blocks = kHeads + kHeadsKv * 2;
  constexpr BwdNaiveConfig kConfig{shape(false, false), 64};
  test::run_on_host(kHeads + kHeadsKv * 2, 64, [&] { BwdNaive<kConfig, HostPieces>::run(p); });
  const auto expect_rows = [](const std::vector<ListedRow>& rows, const std::vector<float>& actual,
                              const std::vector<double>& all, int heads, int of_head, int columns) {
    for (int head = 0; head < heads; ++head) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const int row = (rows[i].batch * heads + head) * of_head + rows[i].query;
        for (int d = 0; d < columns; ++d) {
          EXPECT_NEAR(actual[(index(head) * rows.size() + i) * index(columns) + index(d)],
                      all[index(row * columns + d)],
                      1e-4 + 1e-6 * std::abs(all[index(row * columns + d)]));
        }
      }
    }
  };
  expect_rows(queries, to_q, dq, kHeads, kQueries, kDim);
  expect_rows(keys, to_k, dk, kHeadsKv, kKeys, kDim);
  expect_rows(keys, to_v, dv, kHeadsKv, kKeys, kDimV);
  for (const std::vector<float>& norms : {norms_q, norms_k, norms_v}) {
    EXPECT_TRUE(std::ranges::all_of(norms, [](float x) { return x >= 0 && x < 1e3; }));
    EXPECT_GT(*std::ranges::max_element(norms), 0.1f);
  }
}

// ---- the steps ----

constexpr int kTile = 8, kPadded = 16, kSumColumns = 24;

/// Columns first, so that a kernel that took the rows' order for granted would show.
struct ColumnMajorDqTile {
  static constexpr int kRows = kTile, kColumns = kSumColumns, kNeighbours = 2;
  static constexpr DqQuad kQuad{{0, 1, 2, 3}, {0, 0, 0, 0}};
  static constexpr int offset(int row, int column) { return column * kRows + row; }
};

struct StepsWorld : BackwardWorld {
  std::vector<float> lse_log2, delta, dq_sums;
  BwdStepParams step{};

  StepsWorld() : BackwardWorld(false) {
    constexpr std::size_t kRows = kBatch * kHeads * kPadded;
    lse_log2.assign(kRows, -777.0f), delta.assign(kRows, -777.0f);
    dq_sums.assign(kRows * kSumColumns, -777.0f);
    static_cast<BwdParams&>(step) = params;
    step.scratch = {lse_log2.data(), delta.data(), dq_sums.data(), kPadded, kSumColumns};
    step.zeros_begin = dq_sums.data();
    step.zeros = dq_sums.size() / 4 - 1;  // the last 16 bytes are somebody else's
  }
};

TEST(BwdRows, WriteLseDeltaAndZeros) {
  StepsWorld w;
  constexpr BwdNaiveConfig kConfig{shape(false, false), 64};
  using Step = BwdRows<kConfig, FixedLengths, kTile>;
  static_assert(Step::kRows >= kPadded, "a block a head");
  test::run_on_host(kBatch * kHeads, Step::kThreads, [&] { Step::run(w.step); });
  for (int head = 0; head < kBatch * kHeads; ++head) {
    for (int i = 0; i < kPadded; ++i) {
      const auto at = index(head * kPadded + i);
      const int row = head * kQueries + i;
      if (i >= kQueries || w.lse[index(row)] == -kInf) {
        EXPECT_EQ(w.lse_log2[at], kInf) << i;
        EXPECT_EQ(w.delta[at], 0) << i;
        continue;
      }
      double sum = -w.dlse[index(row)];
      for (int d = 0; d < kDimV; ++d)
        sum += double{w.o[index(row * kDimV + d)]} * w.dout[index(row * kDimV + d)];
      EXPECT_NEAR(w.delta[at], sum, 1e-4);
      EXPECT_NEAR(w.lse_log2[at], w.lse[index(row)] / std::log(2.0), 1e-5);
    }
  }
  const auto end = w.dq_sums.end() - 4;
  EXPECT_TRUE(std::all_of(w.dq_sums.begin(), end, [](float x) { return x == 0; }));
  EXPECT_TRUE(std::all_of(end, w.dq_sums.end(), [](float x) { return x == -777; }));
}

template <class DqTile, bool kAccumulate>
void expect_converted() {
  StepsWorld w;
  for (std::size_t i = 0; i < w.dq_sums.size(); ++i) w.dq_sums[i] = static_cast<float>(i % 1000);
  const std::vector<float> before = w.dq;
  constexpr BwdNaiveConfig kConfig{shape(false, kAccumulate), 64};
  using Step = BwdDq<kConfig, FixedLengths, DqTile, 0>;
  test::run_on_host(kBatch * kHeads * kPadded / kTile, Step::kThreads, [&] { Step::run(w.step); });
  for (int head = 0; head < kBatch * kHeads; ++head) {
    for (int row = 0; row < kQueries; ++row) {
      for (int column = 0; column < kDim; ++column) {
        const int tile = head * (kPadded / kTile) + row / kTile;
        const float sum = w.dq_sums[index(tile * kTile * kSumColumns +
                                          DqTile::offset(row % kTile, column))];
        const auto at = index((head * kQueries + row) * kDim + column);
        ASSERT_FLOAT_EQ(w.dq[at], sum * kScale + (kAccumulate ? before[at] : 0.0f));
      }
    }
  }
}

TEST(BwdSinks, AddUpAHeadsRowsOfAllSequences) {
  StepsWorld w;
  WithSinks<BwdStepParams> params{w.step, {kSinks}};
  params.zeros = 0;
  std::vector<float> dsinks = {3, -4};
  params.dsinks = dsinks.data();
  constexpr BwdNaiveConfig kConfig{shape(false, true, true), 64};
  using Rows = BwdRows<kConfig, FixedLengths, kTile>;
  using Step = BwdSinks<kConfig, FixedLengths>;
  test::run_on_host(kBatch * kHeads, Rows::kThreads, [&] { Rows::run(params); });
  test::run_on_host(kHeads, Step::kThreads, [&] { Step::run(params); });
  const std::vector<double> expected = sink_gradients(w);
  EXPECT_NEAR(dsinks[0], 3 + expected[0], 1e-4);
  EXPECT_NEAR(dsinks[1], -4 + expected[1], 1e-4);
}

TEST(BwdDq, ScalesTheSumsOfATileInAnyOrder) {
  expect_converted<RowMajorDqTile<kTile, kSumColumns>, false>();
  expect_converted<ColumnMajorDqTile, true>();
}

TEST(BwdDq, OfATileThatNobodyCameToIsZeroWhateverLiesThere) {
  StepsWorld w;
  w.dq_sums.assign(w.dq_sums.size(), std::numeric_limits<float>::quiet_NaN());
  constexpr int kTiles = kBatch * kHeads * kPadded / kTile, kCameTo = 5;
  constexpr int kTurns = 2;
  std::vector<int> turns(kTiles * kTurns);
  turns[kCameTo * kTurns] = 1;
  std::fill_n(w.dq_sums.begin() + kCameTo * kTile * kSumColumns, kTile * kSumColumns, 1.0f);
  w.step.zeros_begin = turns.data();
  constexpr BwdNaiveConfig kConfig{shape(false, false), 64};
  using Step = BwdDq<kConfig, FixedLengths, RowMajorDqTile<kTile, kSumColumns>, kTurns>;
  test::run_on_host(kTiles, Step::kThreads, [&] { Step::run(w.step); });
  for (int head = 0; head < kBatch * kHeads; ++head) {
    for (int row = 0; row < kQueries; ++row) {
      const bool came = head * (kPadded / kTile) + row / kTile == kCameTo;
      const auto at = index((head * kQueries + row) * kDim);
      EXPECT_EQ(w.dq[at], came ? kScale : 0.0f) << head << " " << row;
    }
  }
}

// ---- packed sequences ----

TEST(PackedTiles, HaveOneNumberEachAndNoMoreThanRowsAndSequencesNeed) {
  std::mt19937 random(3);
  for (const int rows : {1, 16, 80}) {
    for (const int batch : {1, 2, 7, 40}) {
      std::vector<int> begins = {0};
      for (int s = 0; s < batch; ++s)
        begins.push_back(begins.back() + (random() % 3 == 0 ? 0 : int(random() % 200)));
      const int numbers = begins.back() / rows + batch;
      std::vector<int> tiles_found(index(batch), 0);
      for (int number = 0; number < numbers; ++number) {
        const SequenceTile at = packed_tile(begins.data(), batch, rows, number);
        ASSERT_TRUE(at.sequence >= 0 && at.sequence < batch);
        ASSERT_EQ(at.tile, tiles_found[index(at.sequence)]++) << "in order, none twice";
        ASSERT_EQ(first_packed_tile(begins[index(at.sequence)], at.sequence, rows) + at.tile,
                  number);
      }
      for (int s = 0; s < batch; ++s) {
        const int length = begins[index(s) + 1] - begins[index(s)];
        EXPECT_GE(tiles_found[index(s)], ceil_div(length, rows));
      }
    }
  }
}

TEST(PackedTiles, GiveEveryKeyOfEveryHeadToOneBlock) {
  constexpr int kBlockN = 16, kSequences = 6, kHeadsOfKeys = 3;
  const std::vector<int> begins = {0, 40, 40, 41, 57, 57, 100};
  WithLengths<BwdStepParams> params{};
  params.fwd.batch = kSequences;
  params.fwd.num_heads_q = params.fwd.num_heads_kv = kHeadsOfKeys;
  params.lengths.q = params.lengths.kv = begins.data();
  std::vector<int> owners(index(begins.back() * kHeadsOfKeys), 0);
  for (const int heads_per_group : {1, 2, 3}) {
    const TileOrder order{begins.back() / kBlockN + kSequences, kHeadsOfKeys, heads_per_group, 0};
    std::vector<int> last_key(kSequences * kHeadsOfKeys, -1);
    for (int block = 0; block < order.m_blocks * order.heads; ++block) {
      const KeyTile<decltype(params), PackedLengths> tile(params, place_tile(order, block),
                                                          kBlockN);
      ASSERT_TRUE(tile.kv_head >= 0 && tile.kv_head < kHeadsOfKeys);
      int& before = last_key[index(tile.sequence * kHeadsOfKeys + tile.kv_head)];
      ASSERT_GT(tile.first_key, before) << "turns of a head are taken in the order of blocks";
      before = tile.first_key;
      for (int key = tile.first_key; key < std::min(tile.first_key + kBlockN, tile.lengths.kv());
           ++key)
        ++owners[index((tile.lengths.kv_begin() + key) * kHeadsOfKeys + tile.kv_head)];
    }
  }
  EXPECT_TRUE(std::ranges::all_of(owners, [](int count) { return count == 3; })) << "of 3 orders";
}

constexpr int kListedFloats = listed_key_tile_bytes() / 4;

/// bwd_dq waits for as many parts as there are tiles, and blocks of tiles that hold nothing would
/// take as long as a few query tiles.
TEST(PackedTiles, ThatAreListedHoldEachKeyOnceAndNoneIsEmpty) {
  constexpr int kBlockN = 16, kHeads = 2;
  constexpr BwdNaiveConfig kConfig{shape(false, false, false), 64};
  using Rows = BwdRows<kConfig, PackedLengths, kTile, kBlockN>;
  std::mt19937 random(5);
  for (const int batch : {1, 7, 255, 256, 600}) {  // a block lists those of 256 at a time
    std::vector<int> begins = {0};
    for (int s = 0; s < batch; ++s)
      begins.push_back(begins.back() + (random() % 3 == 0 ? 0 : int(random() % 50)));
    struct Argument : WithLengths<BwdStepParams> {
      TileOrder order{};
    } params{};
    params.fwd.batch = batch;
    params.fwd.num_heads_q = params.fwd.num_heads_kv = kHeads;
    const std::vector<int> no_rows(index(batch) + 1, 0);
    const int most = begins.back() / kBlockN + batch;
    params.lengths = {.q = no_rows.data(), .kv = begins.data(), .most_tiles = most};
    std::vector<float> lse(kHeads * kTile),
        delta(lse.size() + index((most + 1) * kListedFloats), -777.0f);
    params.scratch = {lse.data(), delta.data(), nullptr, kTile, 64};
    test::run_on_host(kHeads, Rows::kThreads, [&] { Rows::run(params); });
    const int tiles = key_tiles_of_head<PackedLengths>(params);
    std::vector<int> owners(index(begins.back()), 0);
    for (int number = 0; number < tiles; ++number) {
      const KeyTile<Argument, PackedLengths, true> tile(params, {number, 0}, kBlockN);
      if (begins.back() != 0) ASSERT_LT(tile.first_key, tile.lengths.kv()) << number;
      for (int key = tile.first_key; key < std::min(tile.first_key + kBlockN, tile.lengths.kv());
           ++key)
        ++owners[index(tile.lengths.kv_begin() + key)];
    }
    EXPECT_TRUE(std::ranges::all_of(owners, [](int count) { return count == 1; })) << batch;
  }
}

/// The kernel's grid has no more tiles than the host took into account, and bwd_dq waits for as
/// many as the list says.
TEST(PackedTiles, OfLengthsThatAreWrongStayInTheirMemory) {
  constexpr int kBlockN = 16, kSequences = 300, kTokens = 1000;
  constexpr int kMost = kTokens / kBlockN + kSequences, kCanaries = 1 << 15;
  constexpr BwdNaiveConfig kConfig{shape(false, false, false), 64};
  using Rows = BwdRows<kConfig, PackedLengths, kTile, kBlockN>;
  constexpr int kFarthest = std::numeric_limits<int>::max() - kBlockN;
  const auto begin_of = [](int wrong, int sequence) {
    const int right = kTokens * sequence / kSequences;
    if (wrong == 0) return 4 * kBlockN * sequence;         // ends beyond the tokens
    if (wrong == 1) return kTokens - right;                // decreases
    if (wrong == 2) return sequence % 2 ? kFarthest : 0;   // up and down
    if (wrong == 3) return sequence ? right : -kFarthest;  // begins before the first token
    return sequence == 270 ? -kTokens : right;             // goes back once
  };
  for (int wrong = 0; wrong < 5; ++wrong) {
    std::vector<int> begins;
    for (int s = 0; s <= kSequences; ++s) begins.push_back(begin_of(wrong, s));
    struct Argument : WithLengths<BwdStepParams> {
      TileOrder order{};
    } params{};
    params.fwd.batch = kSequences;
    params.fwd.num_heads_q = params.fwd.num_heads_kv = 1;
    const std::vector<int> no_rows(kSequences + 1, 0);
    params.lengths = {.q = no_rows.data(), .kv = begins.data(), .most_tiles = kMost};
    std::vector<float> lse(kTile), memory(kCanaries + kTile + (kMost + 1) * kListedFloats, -777.0f);
    const auto behind = memory.size();
    memory.resize(behind + kCanaries, -777.0f);
    params.scratch = {lse.data(), memory.data() + kCanaries, nullptr, kTile, 64};
    test::run_on_host(1, Rows::kThreads, [&] { Rows::run(params); });
    const auto is_canary = [](float x) { return x == -777; };
    EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + kCanaries, is_canary)) << wrong;
    EXPECT_EQ(std::ranges::count(lse, kInf), kTile) << wrong;
    EXPECT_TRUE(std::all_of(memory.begin() + std::ptrdiff_t(behind), memory.end(), is_canary))
        << wrong;
    const int tiles = key_tiles_of_head<PackedLengths>(params);
    ASSERT_TRUE(tiles >= 1 && tiles <= kMost) << wrong;
    for (int number = 0; number < tiles; ++number) {
      const KeyTile<Argument, PackedLengths, true> tile(params, {number, 0}, kBlockN);
      ASSERT_TRUE(tile.sequence >= 0 && tile.sequence < kSequences) << wrong;
      ASSERT_EQ(tile.lengths.kv_begin(), begins[index(tile.sequence)]) << wrong;
      if (tiles > 1) ASSERT_LT(tile.first_key, tile.lengths.kv()) << wrong;
    }
  }
}

/// A block must come, or sums that blocks set to zeros would hold anything.
TEST(PackedTiles, OfNoKeysAreOneThatHoldsNone) {
  constexpr int kBlockN = 16, kSequences = 3;
  constexpr BwdNaiveConfig kConfig{shape(false, false, false), 64};
  using Rows = BwdRows<kConfig, PackedLengths, kTile, kBlockN>;
  struct Argument : WithLengths<BwdStepParams> {
    TileOrder order{};
  } params{};
  const std::vector<int> begins(kSequences + 1, 0);
  params.fwd.batch = kSequences;
  params.fwd.num_heads_q = params.fwd.num_heads_kv = 1;
  params.lengths = {.q = begins.data(), .kv = begins.data()};
  std::vector<float> lse(kTile), delta(lse.size() + 2 * kListedFloats, -777.0f);
  params.scratch = {lse.data(), delta.data(), nullptr, kTile, 64};
  test::run_on_host(1, Rows::kThreads, [&] { Rows::run(params); });
  EXPECT_EQ(key_tiles_of_head<PackedLengths>(params), 1);
  const KeyTile<Argument, PackedLengths, true> tile(params, {0, 0}, kBlockN);
  EXPECT_EQ(tile.lengths.kv(), 0);
  // Without queries nobody has listed them: there are as many as the host took into account.
  params.scratch.rows_padded = 0;
  params.order.m_blocks = 3;
  EXPECT_EQ(key_tiles_of_head<PackedLengths>(params), 3);
}

/// The rows of StepsWorld's batch 0 and 1 as five packed sequences of one tensor of 26 rows a head.
struct PackedWorld : StepsWorld {
  static constexpr int kSequences = 5, kTokens = kBatch * kQueries;
  static constexpr int kRowsOfHead = (kTokens / kTile + kSequences) * kTile;
  std::vector<int> begins = {0, 9, 9, 10, 24, 26};
  WithLengths<WithSinks<BwdStepParams>> packed{};
  std::vector<float> dsinks = {0, 0};

  PackedWorld() {
    static_cast<BwdStepParams&>(packed) = step;
    packed.sinks.logits = kSinks;
    packed.dsinks = dsinks.data();
    FwdParams& p = packed.fwd;
    p.batch = kSequences;
    p.seqlen_q = 14;
    const auto as_one = [](TensorRef& tensor, int columns) {
      tensor.stride_head = i64{kTokens} * columns;
    };
    as_one(p.o, kDimV), as_one(packed.dout, kDimV), as_one(packed.dq, kDim);
    p.lse_stride_head = packed.dlse_stride_head = kTokens;
    packed.lengths.q = packed.lengths.kv = begins.data();
    constexpr std::size_t kRows = kHeads * kRowsOfHead;
    lse_log2.assign(kRows, -777.0f), delta.assign(kRows, -777.0f);
    dq_sums.assign(kRows * kSumColumns, -777.0f);
    packed.scratch = {lse_log2.data(), delta.data(), dq_sums.data(), kRowsOfHead, kSumColumns};
    packed.zeros = 0;
  }
  /// Number in the scratch of a token of a head.
  std::size_t row_of(int head, int token) const {
    int sequence = 0;
    while (token >= begins[index(sequence) + 1]) ++sequence;
    const int begin = begins[index(sequence)];
    return index(head * kRowsOfHead + (begin / kTile + sequence) * kTile + token - begin);
  }
};

TEST(BwdStepsOfPackedSequences, WriteEveryRowOfTheScratchAndAddUpSinks) {
  PackedWorld w;
  constexpr BwdNaiveConfig kConfig{shape(false, false, true), 64};
  using Rows = BwdRows<kConfig, PackedLengths, kTile>;
  using Sinks = BwdSinks<kConfig, PackedLengths>;
  const unsigned blocks = kHeads * unsigned(ceil_div(PackedWorld::kRowsOfHead, Rows::kRows));
  test::run_on_host(blocks, Rows::kThreads, [&] { Rows::run(w.packed); });
  test::run_on_host(kHeads, Sinks::kThreads, [&] { Sinks::run(w.packed); });
  std::vector<double> expected(kHeads);
  std::vector<bool> is_row(w.delta.size());
  for (int head = 0; head < kHeads; ++head) {
    for (int token = 0; token < PackedWorld::kTokens; ++token) {
      const std::size_t at = w.row_of(head, token);
      const int row = head * PackedWorld::kTokens + token;
      const float lse = w.lse[index(row)];
      if (lse == -kInf) continue;
      ASSERT_FALSE(is_row[at]);
      is_row[at] = true;
      double sum = -w.dlse[index(row)];
      for (int d = 0; d < kDimV; ++d)
        sum += double{w.o[index(row * kDimV + d)]} * w.dout[index(row * kDimV + d)];
      EXPECT_NEAR(w.delta[at], sum, 1e-4);
      EXPECT_NEAR(w.lse_log2[at], lse / std::log(2.0), 1e-5);
      expected[index(head)] -= std::exp(kSinks[head] - lse) * sum;
    }
    EXPECT_NEAR(w.dsinks[index(head)], expected[index(head)], 1e-4);
  }
  for (std::size_t i = 0; i < is_row.size(); ++i) {
    if (is_row[i]) continue;
    EXPECT_EQ(w.lse_log2[i], kInf) << i;
    EXPECT_EQ(w.delta[i], 0) << i;
  }
}

TEST(BwdStepsOfPackedSequences, FindTheSumsOfEachRow) {
  PackedWorld w;
  for (std::size_t i = 0; i < w.dq_sums.size(); ++i) w.dq_sums[i] = static_cast<float>(i % 1000);
  constexpr BwdNaiveConfig kConfig{shape(false, false), 64};
  using Tile = RowMajorDqTile<kTile, kSumColumns>;
  using Step = BwdDq<kConfig, PackedLengths, Tile, 0>;
  test::run_on_host(kHeads * PackedWorld::kRowsOfHead / kTile, Step::kThreads,
                    [&] { Step::run(w.packed); });
  for (int head = 0; head < kHeads; ++head) {
    for (int token = 0; token < PackedWorld::kTokens; ++token) {
      for (int column = 0; column < kDim; ++column) {
        const float sum = w.dq_sums[w.row_of(head, token) * kSumColumns + index(column)];
        const auto at = index((head * PackedWorld::kTokens + token) * kDim + column);
        ASSERT_FLOAT_EQ(w.dq[at], sum * kScale) << head << " " << token;
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
