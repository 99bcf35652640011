// bwd_mma_sm80_test.cpp - the whole kernel on the host beside the gradients of the oracle: warps
// alone, in pairs and in fours.
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
#include "bwd_mma_sm80/kernel.cuh"
#include "pieces/fixed_lengths.cuh"
#include "pieces/plain_score.cuh"
#include "backward/plain_slope.cuh"
#include "parts/softcap/slope.cuh"
#include "pieces/window_mask.cuh"
#include "backward/query_walk.cuh"
#include "tests/kernels/backward_on_host.h"
// clang-format on

namespace attnforge {
namespace {

struct PlainPieces {
  using Lengths = FixedLengths;
  using Score = PlainScore;
  using Slope = PlainSlope;
  using Mask = WindowMask<false>;
  using Queries = QueryWalk<false, true>;
};

/// tanh is not what is tested here.
struct CapPieces : PlainPieces {
  struct Score {
    static constexpr bool kScaled = false;
    template <class Scores, class QueryTile>
    static void apply(const Scores& scores, const QueryTile& tile) {
      scores.for_each([to_x = tile.params.fwd.softcap_to_x](int, int) {
        return [to_x](float s, int) { return std::tanh(s * to_x) / to_x; };
      });
    }
  };
  using Slope = SoftcapSlope;
};

constexpr BwdMmaSm80Config config_of(int head_dim, int head_dim_v, int block_n, int num_warps,
                                     int roles, int step_m, int stages, int ds_stages,
                                     int keys_in_regs) {
  BwdMmaSm80Config c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = head_dim, c.head_dim_v = head_dim_v;
  c.right_bound = 1;
  c.alignment = 16;
  c.fp32_gradients = 1;
  c.block_m = 64, c.block_n = block_n;
  c.num_warps = num_warps, c.roles = roles, c.step_m = step_m;
  c.stages = stages, c.ds_stages = ds_stages, c.keys_in_regs = keys_in_regs;
  c.dq = kDqAdded, c.dq_vector = 4, c.blocks_per_sm = 1;
  return c;
}

/// The same, of fp16 and with a soft cap.
constexpr BwdMmaSm80Config of_fp16(BwdMmaSm80Config c) {
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kFp16;
  return c;
}
constexpr BwdMmaSm80Config with_cap(BwdMmaSm80Config c) {
  c.softcap = 1;
  return c;
}

template <BwdMmaSm80Config C>
std::string words(int queries, int keys) {
  return std::string("bwd ") + (C.dtype == kFp16 ? "fp16" : "bf16") +
         " num_heads=2:1 causal seqlen=" + std::to_string(queries) + ":" + std::to_string(keys) +
         " head_dim=" + std::to_string(C.head_dim) + ":" + std::to_string(C.head_dim_v) +
         (C.softcap ? " softcap=2" : "");
}

/// check(when, dq_sum) after a run at each of the first paces.
template <BwdMmaSm80Config C, class Pieces = PlainPieces, class Check>
void run_kernel(const test::BackwardOnHost& world, const Check& check,
                std::size_t paces = std::size(test::kPaces)) {
  static_assert(C.valid());
  BwdMmaSm80Params params{};
  world.fill(params);
  params.order = {.m_blocks = ceil_div(params.fwd.seqlen_kv, C.block_n),
                  .heads = 1,
                  .heads_per_group = 1,
                  .heavy_last = 0};
  for (const test::Pace& pace : std::span(test::kPaces).first(paces)) {
    constexpr int kColumns = C.qk_chunks() * 8;
    std::vector<float> lse = world.lse_log2, delta = world.delta, sums(world.of_rows(kColumns));
    params.scratch = {lse.data(), delta.data(), sums.data(), world.rows(), kColumns};
    test::Machine machine{.late = pace.late, .slow_warp = pace.slow_warp};
    const std::string failure = test::run_together(
        machine, static_cast<unsigned>(params.order.m_blocks), C.num_threads(),
        static_cast<std::size_t>(C.smem_bytes()), [&] { BwdMmaSm80<C, Pieces>::run(params); });
    ASSERT_EQ(failure, "") << pace.name;
    check(pace.name, [&](int head, int row, int column) {
      const auto tile = test::index_of(head * (world.rows() / C.block_m) + row / C.block_m);
      return sums[tile * C.block_m * kColumns +
                  test::index_of(BwdMmaSm80DqTile<C>::offset(row % C.block_m, column))];
    });
  }
}

#ifdef ATTNFORGE_THREADS_OF_SYSTEM
#define ATTNFORGE_NEEDS_TURNS \
  GTEST_SKIP() << "warps that wait for one another want threads that take turns"
#else
#define ATTNFORGE_NEEDS_TURNS
#endif

template <BwdMmaSm80Config C>
void expect_gradients(int queries, int keys) {
  ATTNFORGE_NEEDS_TURNS;
  test::BackwardOnHost world(words<C>(queries, keys), C.block_m);
  run_kernel<C>(world, [&](const char* when, const auto& dq_sum) { world.expect(when, dq_sum); });
}

/// Of all keys that a row has, and of these as some of 70,000 and of 4 million, whose probabilities
/// are subnormal numbers of fp16, and none.
template <BwdMmaSm80Config C>
void expect_as_exact_as_flash() {
  ATTNFORGE_NEEDS_TURNS;
  // dS of bf16 is rounded as often as dS of flash and once more, with P.
  constexpr double kMost = C.roles != 1 && C.dtype == kBf16 ? 1.6 : 1.1;
  for (const float lse_above : {0.0f, 6.93f, 11.0f}) {
    if (C.dtype == kFp16 && lse_above > 10) continue;  // dS itself is none
    SCOPED_TRACE(lse_above);
    test::BackwardOnHost world(words<C>(100, 70), C.block_m, true, lse_above);
    run_kernel<C, std::conditional_t<C.softcap != 0, CapPieces, PlainPieces>>(
        world,
        [&](const char* when, const auto& dq_sum) {
          world.expect_as_exact_as_flash(when, dq_sum, kMost);
        },
        1);  // how exact they are does not depend on it
  }
}

TEST(BwdMmaOnTheHost, WarpsAlone) {
  expect_gradients<config_of(64, 64, 64, 4, 1, 32, 2, 2, 0)>(100, 70);
}
TEST(BwdMmaOnTheHost, WarpsInPairs) {
  expect_gradients<config_of(64, 64, 64, 4, 2, 32, 1, 1, 1)>(100, 70);
  expect_gradients<config_of(64, 128, 64, 8, 2, 64, 2, 2, 0)>(130, 60);
}
TEST(BwdMmaOnTheHost, WarpsInFours) {
  expect_gradients<config_of(64, 64, 64, 8, 4, 64, 2, 2, 0)>(200, 60);
  expect_gradients<config_of(128, 64, 64, 8, 4, 32, 2, 1, 0)>(100, 60);
  expect_gradients<config_of(64, 64, 32, 8, 4, 32, 1, 1, 1)>(100, 60);
}

/// dS of fp16 is rounded once: what it is made of is not rounded to 16 bits on its way to it.
TEST(BwdMmaOnTheHost, GradientsOfWarpsAloneAreAsExactAsThoseOfFlash) {
  constexpr BwdMmaSm80Config kConfig = config_of(64, 64, 64, 4, 1, 32, 2, 2, 0);
  expect_as_exact_as_flash<kConfig>();
  expect_as_exact_as_flash<of_fp16(kConfig)>();
  expect_as_exact_as_flash<of_fp16(with_cap(kConfig))>();
}
TEST(BwdMmaOnTheHost, GradientsOfWarpsInPairsAreAsExactAsThoseOfFlash) {
  constexpr BwdMmaSm80Config kConfig = config_of(64, 64, 64, 4, 2, 32, 1, 1, 1);
  expect_as_exact_as_flash<kConfig>();
  expect_as_exact_as_flash<with_cap(kConfig)>();
  expect_as_exact_as_flash<of_fp16(kConfig)>();
  expect_as_exact_as_flash<of_fp16(with_cap(kConfig))>();
}
TEST(BwdMmaOnTheHost, GradientsOfWarpsInFoursAreAsExactAsThoseOfFlash) {
  constexpr BwdMmaSm80Config kConfig = config_of(64, 64, 64, 8, 4, 64, 2, 2, 0);
  expect_as_exact_as_flash<kConfig>();
  expect_as_exact_as_flash<with_cap(kConfig)>();
  expect_as_exact_as_flash<of_fp16(kConfig)>();
  expect_as_exact_as_flash<of_fp16(with_cap(kConfig))>();
}

/// P of any row that there is: of bf16 as far as it is for dV, of fp16 exact, whose 16 bits have no
/// number for some.
template <BwdMmaSm80Config C>
void expect_factors(float to) {
  using Factors = BwdMmaSm80Factors<C>;
  for (float p = 0x1p-26f; p < 15; p *= 1.003f) {
    const float x[4] = {p, 0, 1, p};
    u32 words[2], others[2];
    Factors::split(x, words, others);
    for (int i = 0; i < 4; ++i) EXPECT_NEAR(Factors::of(words, others, i), x[i], x[i] * to) << p;
  }
}
TEST(BwdMmaOnTheHost, WhatPassesBetweenWarpsHasTheRangeOfProbabilities) {
  constexpr BwdMmaSm80Config kConfig = config_of(64, 64, 64, 4, 2, 32, 1, 1, 1);
  expect_factors<kConfig>(0x1p-8f);
  expect_factors<of_fp16(kConfig)>(0);
}

}  // namespace
}  // namespace attnforge
