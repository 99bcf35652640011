// fwd_wgmma_sm90a_fp8_test.cpp - the whole kernel on the host where q, k and v are e4m3: outputs
// are those of plain sums, with V transposed by workers, sums of two levels and scales of heads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "generator/formats/codes.h"
#include "reference/half.h"
#include "tests/kernels/index_of.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "low_bits.h"
#include "parts/lengths/params.h"
#include "parts/low_bits/params.h"
#include "fwd_wgmma_sm90a/kernel.cuh"
#include "fwd_wgmma_sm90a/fp8.cuh"
#include "hopper/dense_pieces.cuh"
#include "tests/kernels/fwd_wgmma_config.h"
#include "hopper/load_key_scales.cuh"
#include "hopper/transpose_v.cuh"
#include "parts/lengths/bound_order.cuh"
#include "parts/lengths/packed_lengths.cuh"
#include "parts/lengths/queue_order.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kColumns = 128, kHeadsQ = 2;
constexpr u8 kNan = 0x7f;

constexpr FwdWgmmaSm90aConfig config_of(int warpgroups, int grid) {
  FwdWgmmaSm90aConfig c = test::usual_config(kE4m3, kColumns, 128, warpgroups, grid);
  c.dtype_o = kBf16;
  c.kv_scale = kScaleHead;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_fast_sums(FwdWgmmaSm90aConfig c) {
  c.fast_sums = 1;
  return c;
}
constexpr FwdWgmmaSm90aConfig of_tokens(FwdWgmmaSm90aConfig c) {
  c.kv_scale = kScaleToken;
  return c;
}
constexpr FwdWgmmaSm90aConfig causal(FwdWgmmaSm90aConfig c) {
  c.right_bound = c.pingpong = 1;
  return c;
}
constexpr FwdWgmmaSm90aConfig packed(FwdWgmmaSm90aConfig c) {
  c.lengths = kPackedLengths;
  return c;
}

using Params = WithScales<WithLengths<FwdWgmmaSm90aParams>, QkvScaleParams>;

template <FwdWgmmaSm90aConfig C>
struct Pieces : DenseTmaPieces<C> {
  template <class Tile>
  using VJob = TransposeV<C, Tile>;
  template <class Tile>
  using KJob = LoadKeyScales<C, Tile>;
};
template <FwdWgmmaSm90aConfig C>
struct PackedPieces : Pieces<C> {
  using Lengths = PackedLengths;
  using Order = QueueOrder;
};

/// Two heads of q on one of k and v; sequences packed one after another, or one alone.
struct World {
  std::vector<int> begins_q{0}, begins_kv{0};
  std::vector<u8> q, k, v;
  std::vector<u16> o;
  std::vector<float> lse;
  std::vector<float> scales;              // of q, k and v of each sequence
  std::vector<float> q_scales, k_scales;  // of rows
  std::vector<std::byte> queue;
  TileCounters counters{};
  Params params{};

  World(const std::vector<int>& rows_q, const std::vector<int>& rows_kv) {
    for (std::size_t i = 0; i < rows_q.size(); ++i) {
      begins_q.push_back(begins_q.back() + rows_q[i]);
      begins_kv.push_back(begins_kv.back() + rows_kv[i]);
      for (const float x : {0.75f, 1.25f, 2.5f}) scales.push_back(x + static_cast<float>(i) / 8);
    }
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<u8>& to, int rows) {
      to.resize(test::index_of(rows * kColumns));
      for (u8& x : to) x = float_to_e4m3(normal(random));
    };
    fill(q, begins_q.back() * kHeadsQ);
    fill(k, begins_kv.back()), fill(v, begins_kv.back());
    std::uniform_real_distribution<float> factor(0.25f, 1.0f);
    q_scales.resize(q.size() / kColumns), k_scales.resize(k.size() / kColumns);
    for (float& x : q_scales) x = factor(random);
    for (float& x : k_scales) x = factor(random);
    o.resize(q.size());
    lse.resize(q.size() / kColumns);
  }
  static TensorMap map_of(const std::vector<u8>& data, int heads, int box_rows) {
    const int rows = static_cast<int>(data.size()) / (heads * kColumns);
    const test::HostMap host{data.data(), heads * kColumns, kColumns, 0, kColumns, rows,
                             heads,       box_rows,         1};
    TensorMap map{};
    std::memcpy(&map, &host, sizeof(host));
    return map;
  }
  /// A number of row `row` in a tensor.
  static double at(const std::vector<u8>& of, int row, int column) {
    return double{e4m3_to_float(of[test::index_of(row * kColumns + column)])};
  }
};

template <FwdWgmmaSm90aConfig C>
void set_params(World& w) {
  const int sequences = static_cast<int>(w.begins_q.size()) - 1;
  int most_q = 0, most_kv = 0;
  for (int i = 0; i < sequences; ++i) {
    most_q = std::max(most_q, w.begins_q[i + 1] - w.begins_q[i]);
    most_kv = std::max(most_kv, w.begins_kv[i + 1] - w.begins_kv[i]);
  }
  Params& p = w.params;
  p.fwd.o = {w.o.data(), 0, kHeadsQ * kColumns, kColumns};
  p.fwd.lse = w.lse.data();
  p.fwd.lse_stride_head = w.begins_q.back();
  p.fwd.batch = sequences, p.fwd.num_heads_q = kHeadsQ, p.fwd.num_heads_kv = 1;
  p.fwd.seqlen_q = most_q, p.fwd.seqlen_kv = most_kv;
  p.fwd.window_left = kOpenWindow, p.fwd.window_right = C.right_bound ? 0 : kOpenWindow;
  p.fwd.softmax_scale = 0.08f;
  const int m_blocks = ceil_div(most_q, C.block_m());
  p.order = {m_blocks, sequences * kHeadsQ, 1, C.right_bound};
  if (C.has_tile_queue()) p.order.heads = kHeadsQ;
  p.tiles = m_blocks * sequences * kHeadsQ;
  p.counters = &w.counters;
  p.q = World::map_of(w.q, kHeadsQ, 64);
  p.k = World::map_of(w.k, 1, C.block_n), p.v = World::map_of(w.v, 1, C.block_n);
  p.scales.q = {&w.scales[0], 3, 0, 1}, p.scales.k = {&w.scales[1], 3, 0, 1};
  p.scales.v = {&w.scales[2], 3, 0, 1};
  if (C.has_key_scales()) {
    p.scales.q = {w.q_scales.data(), 0, kHeadsQ, 1};
    p.scales.k = {w.k_scales.data(), 0, 1, 1};
  }
  p.lengths.q = w.begins_q.data(), p.lengths.kv = w.begins_kv.data();

  std::vector<QueuedTile> items;
  for (int s = 0; s < sequences; ++s)
    for (int m = 0; m * C.block_m() < w.begins_q[s + 1] - w.begins_q[s]; ++m)
      items.push_back({s, m});
  w.queue.resize(sizeof(TileQueue) + items.size() * sizeof(QueuedTile) + 16);
  p.lengths.work = reinterpret_cast<TileQueue*>(
      (reinterpret_cast<std::uintptr_t>(w.queue.data()) + 15) / 16 * 16);
  p.lengths.work->tiles = static_cast<int>(items.size());
  std::ranges::copy(items, reinterpret_cast<QueuedTile*>(p.lengths.work + 1));
}

/// Compares one row of a sequence with sums over its keys.
template <FwdWgmmaSm90aConfig C>
void expect_row(const World& w, int s, int query, int head) {
  const int keys = w.begins_kv[s + 1] - w.begins_kv[s];
  const int queries = w.begins_q[s + 1] - w.begins_q[s];
  const int row = (w.begins_q[s] + query) * kHeadsQ + head;
  const auto q_scale = double{C.has_key_scales() ? w.q_scales[test::index_of(row)]
                                                 : w.scales[s * 3]};
  std::vector<double> p;
  double sum = 0;
  const int seen = C.right_bound ? std::max(0, query + keys - queries + 1) : keys;
  for (int key = 0; key < seen; ++key) {
    double x = 0;
    for (int c = 0; c < kColumns; ++c)
      x += World::at(w.q, row, c) * World::at(w.k, w.begins_kv[s] + key, c);
    const double k_scale = C.has_key_scales()
                               ? double{w.k_scales[test::index_of(w.begins_kv[s] + key)]}
                               : double{w.scales[s * 3 + 1]};
    sum += p.emplace_back(std::exp(x * 0.08f * q_scale * k_scale));
  }
  const double lse = w.lse[test::index_of(head * w.begins_q.back() + w.begins_q[s] + query)];
  EXPECT_NEAR(std::exp(lse), sum, 1e-4 * sum);
  double spread = 0;
  for (const double x : p) spread += x * x / (sum * sum);
  for (int c = 0; c < kColumns; ++c) {
    double wanted = 0;
    for (int key = 0; key < seen; ++key)
      wanted += p[static_cast<std::size_t>(key)] / (sum == 0 ? 1 : sum) *
                World::at(w.v, w.begins_kv[s] + key, c) * double{w.scales[s * 3 + 2]};
    const u32 bits = u32{w.o[test::index_of(row * kColumns + c)]} << 16;
    const double got = double{__uint_as_float(bits)};
    // A 16th of each probability at most, of v of about 3.
    ASSERT_NEAR(got, wanted, 0.5 * std::sqrt(spread) + 0.01)
        << "sequence " << s << " query " << query << " head " << head << " column " << c;
  }
}

/// A run in so many blocks: "", or what was wrong with it.
template <FwdWgmmaSm90aConfig C, template <FwdWgmmaSm90aConfig> class Of>
std::string run(const World& w, test::Machine& machine, int blocks) {
  return test::run_together(machine, static_cast<unsigned>(blocks), C.num_threads(), C.smem_bytes(),
                            [&] { FwdWgmmaSm90a<C, Of<C>, Params>::run(w.params); });
}

template <FwdWgmmaSm90aConfig C, template <FwdWgmmaSm90aConfig> class Of>
void expect_sums(const std::vector<int>& rows_q, const std::vector<int>& rows_kv, int blocks,
                 float q_scale = 0.75f) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  static_assert(C.valid());
  World w(rows_q, rows_kv);
  w.scales[0] = q_scale;
  set_params<C>(w);
  for (const auto& [late, slow] : {std::pair{false, 1u}, {true, 4u * C.warpgroups + 2}}) {
    std::ranges::fill(w.o, u16{0x7fff});
    test::Machine machine;
    machine.late = late, machine.slow_warp = slow;
    ASSERT_EQ((run<C, Of>(w, machine, blocks != 0 ? blocks : w.params.tiles)), "");
    for (int s = 0; s + 1 < static_cast<int>(w.begins_q.size()); ++s)
      for (int query = 0; query < rows_q[static_cast<std::size_t>(s)]; query += 3)
        expect_row<C>(w, s, query, query % kHeadsQ);
  }
}

TEST(Fp8OnTheHost, SumsOfTwoLevels) {
  static_assert(Fp8Sums{config_of(2, kGridPlain)}.columns() == kColumns);
  expect_sums<config_of(2, kGridPlain), Pieces>({70}, {300}, 0);
  expect_sums<causal(config_of(2, kGridDynamic)), Pieces>({150}, {400}, 1);
  expect_sums<test::with_q_in_regs(config_of(1, kGridStatic)), Pieces>({100}, {140}, 2);
  static_assert(Fp8Sums{config_of(3, kGridStatic)}.columns() < kColumns);
  expect_sums<config_of(3, kGridStatic), Pieces>({200}, {300}, 1);
}
TEST(Fp8OnTheHost, FastSums) {
  expect_sums<with_fast_sums(config_of(2, kGridStatic)), Pieces>({150}, {300}, 1);
}
TEST(Fp8OnTheHost, ScalesOfTokens) {
  expect_sums<of_tokens(config_of(2, kGridPlain)), Pieces>({70}, {300}, 0);
  expect_sums<of_tokens(causal(config_of(2, kGridDynamic))), Pieces>({150}, {400}, 1);
  expect_sums<of_tokens(test::with_q_in_regs(config_of(1, kGridStatic))), Pieces>({100}, {140}, 2);
  expect_sums<with_fast_sums(of_tokens(packed(config_of(3, kGridDynamic)))), PackedPieces>(
      {70, 3, 20}, {300, 30, 200}, 2);
}
TEST(Fp8OnTheHost, HiddenKeysStayHiddenWhereAScaleIsZero) {
  expect_sums<causal(config_of(2, kGridDynamic)), Pieces>({150}, {400}, 1, 0.0f);
}
TEST(Fp8OnTheHost, KeysAfterASequenceAreNotANumber) {
  constexpr auto kConfig = packed(config_of(1, kGridDynamic));
  World w({70, 3, 20}, {100, 30, 200});
  set_params<kConfig>(w);
  for (int row = w.begins_kv[1]; row < w.begins_kv[2]; ++row)  // of the second sequence
    std::fill_n(w.v.begin() + row * kColumns, kColumns, kNan);
#ifndef ATTNFORGE_THREADS_OF_SYSTEM
  test::Machine machine;
  ASSERT_EQ((run<kConfig, PackedPieces>(w, machine, 2)), "");
  for (const int s : {0, 2})
    for (int query = 0; query < 20; ++query) expect_row<kConfig>(w, s, query, query % kHeadsQ);
#endif
}

}  // namespace
}  // namespace attnforge
