// bwd_wgmma_sm90a_test.cpp - the whole kernel on the host, several blocks at a time, beside
// gradients by their definition in fp64: dK, dV and the sums of dQ.
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
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "params_bwd.h"
#include "bwd_wgmma_sm90a/kernel.cuh"
#include "pieces/fixed_lengths.cuh"
#include "pieces/plain_score.cuh"
#include "pieces/plain_slope.cuh"
#include "pieces/window_mask.cuh"
#include "tile/query_walk.cuh"
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
  c.warpgroups = 2;
  c.split_columns = head_dim > 128;
  c.block_m = 64;
  c.q_stages = 2, c.do_stages = c.split_columns ? 1 : 2;
  c.ds_stages = c.late_dq = c.split_columns ? 1 : 2;
  c.late_dq = c.split_columns ? 0 : 1;
  c.dq_rounds = c.split_columns ? 2 : 1;
  c.dq = dq, c.zeros_ahead = zeros_ahead, c.grid = grid;
  return c;
}

template <BwdWgmmaSm90aConfig C>
struct Pieces {
  using Lengths = FixedLengths;
  using Score = PlainScore;
  using Slope = PlainSlope;
  using Mask = WindowMask<C.left_bound != 0>;
  using Queries = QueryWalk<C.left_bound != 0, C.right_bound != 0>;
};

/// Of a tensor, in boxes of so many rows.
TensorMap map_of(const test::Tensor16& tensor, int box_rows) {
  const i64 row = i64{tensor.heads} * tensor.columns;
  const test::HostMap host{tensor.bits.data(), row,         tensor.columns, row * tensor.rows,
                           tensor.columns,     tensor.rows, tensor.heads,   box_rows};
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

struct Sizes {
  int batch, heads_q, heads_kv, queries, keys;
  int window_left = kOpenWindow;
};

/// Runs the kernel on `blocks` blocks at a time; 0: all.
template <BwdWgmmaSm90aConfig C>
void expect_gradients(const Sizes& of, int blocks) {
  static_assert(C.valid());
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  const test::BackwardOnHost world({of.batch, of.heads_q, of.heads_kv, of.queries, of.keys,
                                    C.head_dim, C.head_dim_v, C.right_bound != 0, C.block_m,
                                    of.window_left});
  BwdWgmmaSm90aParams params{};
  world.fill(params.fwd);
  params.order = {.m_blocks = ceil_div(of.keys, C.block_n()),
                  .heads = of.batch * of.heads_kv,
                  .heads_per_group = 2,
                  .heavy_last = C.dq == kDqFromDiagonal};
  params.q = map_of(world.q, C.block_m), params.dout = map_of(world.dout, C.block_m);
  params.k = map_of(world.k, C.block_n()), params.v = map_of(world.v, C.block_n());
  const int tiles = params.order.m_blocks * params.order.heads;
  for (const test::Pace& pace : test::kPaces) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    constexpr int kLag = 2, kColumns = C.dq_columns();
    // What nobody sets to zeros must be stored before it is added to.
    std::vector<float> lse = world.lse_log2, delta = world.delta,
                       sums(world.of_rows(kColumns), kNan);
    const int heads_q = of.batch * of.heads_q;
    const int zero_heads = C.adds_in_order() ? 0
                           : C.zeros_ahead   ? kLag * (of.heads_q / of.heads_kv)
                                             : heads_q;
    std::fill_n(sums.begin(), zero_heads * world.rows() * kColumns, 0.0f);
    std::vector<float> dk(world.dk.size(), kNan), dv(world.dv.size(), kNan);
    std::vector<int> turns(world.of_rows(1) / C.block_m * C.warpgroups),
        cleared(static_cast<std::size_t>(params.order.heads));
    int given = 0;
    params.scratch = {lse.data(), delta.data(), sums.data(), world.rows(), kColumns};
    params.dk = world.k.ref(dk.data()), params.dv = world.v.ref(dv.data());
    params.dq_turns = turns.data();
    params.zeros = {kLag, cleared.data()};
    params.given = &given;
    test::Machine machine{.late = pace.late, .slow_warp = pace.slow_warp};
    const std::string failure = test::run_together(
        machine, static_cast<unsigned>(blocks != 0 ? blocks : tiles), C.num_threads(),
        static_cast<std::size_t>(C.smem_bytes()),
        [&] { BwdWgmmaSm90a<C, Pieces<C>>::run(params); });
    ASSERT_EQ(failure, "") << pace.name;
    world.expect(
        pace.name,
        [&](int head, int row, int column) {
          const auto tile = test::index_of(head * (world.rows() / C.block_m) + row / C.block_m);
          // A turn that never came: the step after takes the tile's sums as zeros.
          if (C.adds_in_order() && turns[tile * C.warpgroups] == 0) return 0.0f;
          return sums[tile * C.block_m * kColumns +
                      test::index_of(BwdWgmmaSm90aDqTile<C>::offset(row % C.block_m, column))];
        },
        dk, dv);
    if (C.persistent()) EXPECT_EQ(given, tiles + blocks) << "each block asks until there is none";
  }
}

TEST(BwdWgmmaOnTheHost, PersistentInOrderFromTheDiagonal) {
  expect_gradients<config_of(64, true, kDqFromDiagonal, 0, kGridDynamic)>({1, 2, 2, 300, 300}, 2);
}
TEST(BwdWgmmaOnTheHost, PersistentInOrderOfKeyTiles) {
  expect_gradients<config_of(64, false, kDqInOrder, 0, kGridDynamic)>({2, 2, 1, 70, 300}, 3);
}
TEST(BwdWgmmaOnTheHost, PersistentWithZerosAhead) {
  expect_gradients<config_of(64, false, kDqFromRegs, 1, kGridDynamic)>({2, 2, 2, 130, 200}, 2);
  expect_gradients<config_of(64, true, kDqAnyOrder, 1, kGridDynamic)>({2, 2, 2, 130, 200}, 3);
}
TEST(BwdWgmmaOnTheHost, PersistentWithKeysThatNoQuerySees) {
  expect_gradients<config_of(64, true, kDqFromDiagonal, 0, kGridDynamic)>({1, 2, 1, 200, 90}, 1);
  expect_gradients<config_of(64, true, kDqInOrder, 0, kGridDynamic)>({1, 1, 1, 20, 400}, 2);
}
TEST(BwdWgmmaOnTheHost, PersistentWithWindowsAndColumnsThatFillNoChunk) {
  expect_gradients<with_window(config_of(72, true, kDqFromDiagonal, 0, kGridDynamic))>(
      {1, 1, 1, 200, 300, 90}, 2);
  expect_gradients<with_window(config_of(72, true, kDqInOrder, 0, kGridDynamic))>(
      {1, 1, 1, 200, 300, 90}, 2);
}
TEST(BwdWgmmaOnTheHost, HeadsThatShareKeysTogether) {
  expect_gradients<config_of(64, true, kDqFromRegs, 0, kGridPlain)>({1, 3, 1, 200, 260}, 0);
}
TEST(BwdWgmmaOnTheHost, ByColumnsWithNothingAfterTheLastTile) {
  expect_gradients<config_of(192, true, kDqAnyOrder, 0, kGridPlain)>({1, 2, 1, 150, 130}, 0);
  expect_gradients<config_of(192, false, kDqAnyOrder, 1, kGridPlain)>({3, 1, 1, 50, 64}, 0);
}

}  // namespace
}  // namespace attnforge
