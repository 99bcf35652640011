// bwd_wgmma_sm90a_rows_test.cpp - the whole kernel on the host, where scores read an array by rows
// whose gradient is written: tiles in shared memory change no bit of what lanes load and store by
// themselves; and where no query chooses what they read: beside sums of all pairs in fp64.
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
#include "parts/group_splits/params.h"
#include "parts/user_code/params.h"
#include "bwd_wgmma_sm90a/kernel.cuh"
#include "pieces/fixed_lengths.cuh"
#include "pieces/plain_score.cuh"
#include "backward/plain_slope.cuh"
#include "parts/user_code/row_boxes.cuh"
#include "parts/user_code/slope.cuh"
#include "parts/user_code/whole_dargs.cuh"
#include "pieces/window_mask.cuh"
#include "backward/query_walk.cuh"
#include "tests/kernels/backward_on_host.h"
// clang-format on

namespace attnforge {
namespace {

struct RowsCase {
  int head_dim, causal, late_dq, dq, grid;
};
constexpr BwdWgmmaSm90aConfig config_of_rows(RowsCase of) {
  BwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = of.head_dim;
  c.right_bound = of.causal;
  c.alignment = 16;
  c.fp32_gradients = 1;
  c.user_score = 1;
  c.dargs = 2;
  c.split_columns = of.head_dim > 128;
  c.block_m = 64;
  c.do_stages = c.split_columns ? 1 : 2;
  c.late_dq = of.late_dq;
  c.ds_stages = of.late_dq ? 2 : 1;
  c.dq_rounds = c.split_columns ? 2 : 1, c.dq_stages = 1;
  c.dq = of.dq, c.grid = of.grid;
  c.group_splits = 1;
  return c;
}
constexpr BwdWgmmaSm90aConfig with_row_tiles(BwdWgmmaSm90aConfig c, int bytes) {
  c.row_bytes = bytes;
  return c;
}

constexpr std::byte kUnwritten{0x55};
constexpr int kBiasPitch = 208, kBiasRows = 160, kBiasHeads = 2;

/// score="s + bias[((batch * heads + head) * rows + q) * pitch + k]", dargs="whole bias".
template <class T, bool kAdds, bool kEven>
struct WrittenBias {
  using Words = CodeParams<2>;
  using RowElement = T;
  static constexpr bool kScoreReadsByKey = true, kMaskReadsByKey = false, kTanh = false;
  static constexpr bool kAddsElement = kAdds, kEvenRows = kEven;
  static constexpr int kMostReads = 1;
  static constexpr bool kReadsWithoutQuery = false, kSlopeIsOne = true;

  template <class Array, class S>
  static auto sum(const Array& bias, S s, int batch, int head, int q, KeyPosition k) {
    return s + bias[((batch * kBiasHeads + head) * kBiasRows + q) * kBiasPitch + k];
  }
  template <class Tanh, class S, class Reads = FromMemory>
  static auto score(const Words& words, const Tanh&, S s, int batch, int head, int q, KeyPosition k,
                    int, int, const Reads& reads = {}) {
    return sum(AlignedArray<T, Reads>(words.words[0], reads), s, batch, head, q, k);
  }
  template <class Tanh, class S>
  static auto score_of_reads(const Words& words, const Tanh&, OneRead& reads, S s, int batch,
                             int head, int q, KeyPosition k, int, int) {
    return sum(ReadArray<UserArray<T>>(words.words[0], words.words[1], reads), s, batch, head, q,
               k);
  }
};

template <BwdWgmmaSm90aConfig C, class T>
struct PiecesOfRows {
  using Code = WrittenBias<T, C.row_bytes != 0, C.head_dim == 64>;
  using Lengths = FixedLengths;
  using Score = std::conditional_t<C.row_bytes != 0, BoxedScore<C, Code, UserScore<Code>>,
                                   UserScore<Code>>;
  using Slope = PlainSlope;
  using Mask = WindowMask<C.left_bound != 0>;
  using Queries = QueryWalk<C.left_bound != 0, C.right_bound != 0>;
  using Dargs = WholeDargs<Code, UserRow<Code>>;
};

/// All that a run writes; of the array's gradient what is of keys that are there: to others tiles
/// write nothing but zeros.
struct RowsResult {
  std::string failure;
  std::vector<float> sums, dk, dv;
  std::vector<std::byte> gradient;

  friend bool operator==(const RowsResult&, const RowsResult&) = default;
};

using ParamsOfRows = WithCode<WithGroupSplits<BwdWgmmaSm90aParams>, 2>;

/// `array` and `gradient`: the words of the run.
template <BwdWgmmaSm90aConfig C, class Pieces>
RowsResult run_kernel(test::BackwardOnHost& world, const void* array, void* gradient, int blocks,
                      test::Machine machine) {
  static_assert(C.valid());
  const Problem& problem = world.problem;
  ParamsOfRows params{};
  world.fill(params);
  RowsResult result;
  const auto floats = [](std::int64_t count) {
    return std::vector<float>(test::index_of(count), -7.0f);
  };
  result.dk = floats(i64{world.kv_heads()} * params.fwd.seqlen_kv * C.head_dim);
  result.dv = floats(i64{world.kv_heads()} * params.fwd.seqlen_kv * C.head_dim_v);
  const auto to = [&](std::vector<float>& of, int columns) {
    const i64 rows = params.fwd.num_heads_kv * i64{columns};
    return TensorRef{of.data(), params.fwd.seqlen_kv * rows, rows, columns};
  };
  params.dk = to(result.dk, C.head_dim), params.dv = to(result.dv, C.head_dim_v);
  params.order = {ceil_div(params.fwd.seqlen_kv, C.block_n()), world.kv_heads(), 2,
                  C.dq == kDqFromDiagonal};
  params.from_end_every = 1;
  const auto map_to = [&](TensorMap& map, const Tensor& tensor, int columns, std::int64_t rows,
                          std::int64_t heads, int box_rows) {
    const test::HostMap host{static_cast<const u16*>(tensor.data),
                             tensor.stride_row,
                             tensor.stride_head,
                             tensor.stride_batch,
                             columns,
                             static_cast<int>(rows),
                             static_cast<int>(heads),
                             box_rows};
    std::memcpy(&map, &host, sizeof(host));
  };
  const Tensors& t = world.tensors;
  map_to(params.q, t.q, C.head_dim, problem.seqlen_q, problem.num_heads_q, C.block_m);
  map_to(params.dout, t.gradients.dout, C.head_dim_v, problem.seqlen_q, problem.num_heads_q,
         C.block_m);
  map_to(params.k, t.k, C.head_dim, problem.seqlen_kv, problem.num_heads_kv, C.block_n());
  map_to(params.v, t.v, C.head_dim_v, problem.seqlen_kv, problem.num_heads_kv, C.block_n());
  result.sums.assign(world.of_rows(C.dq_columns()), 0.0f);
  std::vector<float> lse = world.lse_log2, delta = world.delta;
  std::vector<int> turns(world.of_rows(1) / C.block_m * C.warpgroups),
      added(test::index_of(world.kv_heads()));
  int given = 0;
  params.scratch = {lse.data(), delta.data(), result.sums.data(), world.rows(), C.dq_columns()};
  params.dq_turns = turns.data();
  params.added = added.data();
  params.given = &given;
  params.code.words[0] = reinterpret_cast<std::uintptr_t>(array);
  params.code.words[1] = reinterpret_cast<std::uintptr_t>(gradient);
  const int tiles = params.order.m_blocks * params.order.heads;
  result.failure = test::run_together(machine, static_cast<unsigned>(blocks != 0 ? blocks : tiles),
                                      C.num_threads(), static_cast<std::size_t>(C.smem_bytes()),
                                      [&] { BwdWgmmaSm90a<C, Pieces, ParamsOfRows>::run(params); });
  return result;
}

template <BwdWgmmaSm90aConfig C, class T>
RowsResult run_rows(test::BackwardOnHost& world, const std::vector<T>& bias, int blocks,
                    test::Machine machine) {
  std::vector<std::byte> gradient(bias.size() * sizeof(T) + 16, kUnwritten);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(gradient.data()) % 16, 0u);
  RowsResult result = run_kernel<C, PiecesOfRows<C, T>>(world, bias.data(), gradient.data(), blocks,
                                                        machine);
  result.gradient = std::move(gradient);
  const std::size_t keys = test::index_of(world.problem.seqlen_kv);
  for (std::size_t row = 0; row < bias.size() / kBiasPitch; ++row) {
    const auto after = std::span(result.gradient)
                           .subspan((row * kBiasPitch + keys) * sizeof(T),
                                    (kBiasPitch - keys) * sizeof(T));
    EXPECT_TRUE(C.row_bytes == 0 || std::ranges::all_of(after, [](std::byte x) {
                  return x == std::byte{0} || x == kUnwritten;
                }));
    std::ranges::fill(after, kUnwritten);
  }
  return result;
}

template <BwdWgmmaSm90aConfig C, class T = Bf16>
void expect_same_gradients(const std::string& sizes, int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  const std::string words = "bwd bf16 head_dim=" + std::to_string(C.head_dim) + " " + sizes;
  test::BackwardOnHost world(C.right_bound ? words + " causal" : words, C.block_m);
  ASSERT_LE(world.problem.seqlen_q, kBiasRows);
  ASSERT_LE(world.problem.seqlen_kv, kBiasPitch);
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::vector<T> bias(test::index_of(world.problem.batch * kBiasHeads * kBiasRows * kBiasPitch));
  for (T& x : bias) {
    const float number = random() % 9 == 0 ? -INFINITY : normal(random) / 2;
    if constexpr (sizeof(T) == 2)
      x = {static_cast<u16>(float_to_bf16(number))};
    else
      x = number;
  }
  const RowsResult plain = run_rows<C, T>(world, bias, blocks, {});
  ASSERT_EQ(plain.failure, "");
  const auto written = std::ranges::count_if(plain.gradient,
                                             [](std::byte x) { return x != kUnwritten; });
  EXPECT_GT(written, world.problem.seqlen_q * world.problem.seqlen_kv) << "there is a gradient";
  for (const test::Pace& pace : test::kPaces) {
    test::Machine machine;
    machine.late = pace.late, machine.slow_warp = pace.slow_warp;
    const RowsResult tiled = run_rows<with_row_tiles(C, sizeof(T)), T>(world, bias, blocks,
                                                                       machine);
    EXPECT_EQ(tiled.failure, "") << pace.name;
    EXPECT_TRUE(tiled.gradient == plain.gradient) << pace.name;
    EXPECT_TRUE(tiled.dk == plain.dk && tiled.dv == plain.dv) << pace.name;
    EXPECT_TRUE(!C.adds_in_order() || tiled.sums == plain.sums) << pace.name;
  }
}

TEST(BwdRowTilesOnTheHost, ByKeysWithDqOfTheTileBefore) {
  expect_same_gradients<config_of_rows({64, 1, kDqFirst, kDqInOrder, kGridPlain})>(
      "batch=2 num_heads=2 seqlen=150:200", 0);
  expect_same_gradients<config_of_rows({64, 0, kDvFirst, kDqInOrder, kGridPlain}), float>(
      "batch=1 num_heads=2:1 seqlen=70:140", 0);
}
TEST(BwdRowTilesOnTheHost, GradientsByWarpsThatDoNotCompute) {
  constexpr auto kCausal = config_of_rows({64, 1, kDqFirst, kDqFromRegs, kGridPlain});
  constexpr auto kFull = config_of_rows({64, 0, kDqFirst, kDqFromRegs, kGridPlain});
  static_assert(with_row_tiles(kCausal, 2).has_dargs_aside());
  expect_same_gradients<kCausal>("batch=2 num_heads=2:1 seqlen=150:200", 0);
  expect_same_gradients<kCausal>("batch=1 num_heads=2:1 seqlen=160:60", 0);  // some see nothing
  expect_same_gradients<kFull>("batch=1 num_heads=2 seqlen=100:133", 0);
  expect_same_gradients<kFull, float>("batch=1 num_heads=1 seqlen=70:140", 0);
}
TEST(BwdRowTilesOnTheHost, ByKeysWithDqOfTheSameTile) {
  expect_same_gradients<config_of_rows({64, 1, 0, kDqInOrder, kGridPlain})>(
      "batch=1 num_heads=2:1 seqlen=150:77", 0);
}
TEST(BwdRowTilesOnTheHost, InPersistentBlocks) {
  expect_same_gradients<config_of_rows({64, 1, kDqFirst, kDqFromDiagonal, kGridDynamic})>(
      "batch=1 num_heads=2 seqlen=160:200", 2);
}
TEST(BwdRowTilesOnTheHost, ByColumns) {
  expect_same_gradients<config_of_rows({192, 1, 0, kDqInOrder, kGridPlain})>(
      "batch=1 num_heads=2:1 seqlen=130:150", 0);
}

/// score="s * a[head] + a[100 + k] * a[7]", or with kSum "s + a[100 + k] * a[head]"; dargs=a.
template <bool kSum>
struct KeysCode {
  using Words = CodeParams<2>;
  static constexpr bool kScoreReadsByKey = true, kMaskReadsByKey = false, kTanh = false;
  static constexpr bool kReadsWithoutQuery = true, kSlopeIsOne = kSum;
  static constexpr int kMostReads = kSum ? 2 : 3;

  template <class Array, class S>
  static auto text(const Array& a, S s, int head, KeyPosition k) {
    if constexpr (kSum)
      return value_of_score((s + a[100 + k] * a[head]));
    else
      return value_of_score((s * a[head] + a[100 + k] * a[7]));
  }
  template <class Tanh, class S>
  static auto score(const Words& words, const Tanh&, S s, int, int head, int, KeyPosition k, int,
                    int) {
    return text(UserArray<float>(words.words[0]), s, head, k);
  }
  template <class Tanh, class S>
  static auto score_of_reads(const Words& words, const Tanh&, OneRead& reads, S s, int, int head,
                             int, KeyPosition k, int, int) {
    return text(ReadArray<UserArray<float>>(words.words[0], words.words[1], reads), s, head, k);
  }
};

template <BwdWgmmaSm90aConfig C, bool kSum>
struct PiecesOfKeys {
  using Code = KeysCode<kSum>;
  using Lengths = FixedLengths;
  using Score = UserScore<Code>;
  using Slope = UserSlope<Code>;
  using Mask = WindowMask<C.left_bound != 0>;
  using Queries = QueryWalk<C.left_bound != 0, C.right_bound != 0>;
  using Dargs = DargsOfRows<Code, UserRow<Code>>;
};

/// What pairs add to an element, and the sum of squares of that.
struct SumOfPairs {
  double sum = 0, squares = 0;

  void add(double x) { sum += x, squares += x * x; }
};
/// Of the array, and of K as RowsResult::dk has it.
struct SumsOfPairs {
  std::vector<SumOfPairs> array, dk;
};
template <bool kSum>
SumsOfPairs sums_of_pairs(const test::BackwardOnHost& world, const std::vector<float>& a) {
  const Problem& p = world.problem;
  const auto element = [&](const Tensor& x, std::int64_t batch, std::int64_t row, std::int64_t head,
                           int column) {
    return double{
        load_element(p.dtype_q, x.data,
                     batch * x.stride_batch + row * x.stride_row + head * x.stride_head + column)};
  };
  const auto dot = [&](const Tensor& x, std::int64_t row, std::int64_t x_head, const Tensor& y,
                       std::int64_t key, std::int64_t y_head, std::int64_t batch) {
    double sum = 0;
    for (int c = 0; c < p.head_dim; ++c)
      sum += element(x, batch, row, x_head, c) * element(y, batch, key, y_head, c);
    return sum;
  };
  const double scale = 1 / std::sqrt(double(p.head_dim));
  std::vector<SumOfPairs> sums(a.size()),
      dk(test::index_of(p.batch * p.seqlen_kv * p.num_heads_kv * p.head_dim));
  for (std::int64_t row = 0; row < p.batch * p.num_heads_q * p.seqlen_q; ++row) {
    const std::int64_t q = row % p.seqlen_q, head = row / p.seqlen_q % p.num_heads_q,
                       batch = row / p.seqlen_q / p.num_heads_q;
    const std::int64_t kv_head = head / (p.num_heads_q / p.num_heads_kv);
    const std::size_t at = test::index_of((batch * p.num_heads_q + head) * world.rows() + q);
    for (std::int64_t k = 0; k < p.seqlen_kv; ++k) {
      if (p.causal && k > q + p.seqlen_kv - p.seqlen_q) continue;
      const Tensors& t = world.tensors;
      const std::size_t h = test::index_of(head), key = test::index_of(100 + k);
      const double s = dot(t.q, q, head, t.k, k, kv_head, batch) * scale;
      const double score = kSum ? s + a[key] * a[h] : s * a[h] + a[key] * a[7];
      const double dp = dot(t.gradients.dout, q, head, t.v, k, kv_head, batch);
      const double ds = std::exp2(score * 1.4426950408889634 - world.lse_log2[at]) *
                        (dp - world.delta[at]);
      sums[h].add(ds * (kSum ? double{a[key]} : s));
      sums[key].add(ds * a[kSum ? h : 7]);
      if (!kSum) sums[7].add(ds * a[key]);
      const double of_score = ds * (kSum ? 1 : double{a[h]}) * scale;
      const std::int64_t row_of_dk = (batch * p.seqlen_kv + k) * p.num_heads_kv + kv_head;
      for (int c = 0; c < p.head_dim; ++c)
        dk[test::index_of(row_of_dk * p.head_dim + c)].add(of_score *
                                                           element(t.q, batch, q, head, c));
    }
  }
  return {sums, dk};
}

template <BwdWgmmaSm90aConfig C, bool kSum>
void expect_sums_over_queries(const std::string& sizes, int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  const std::string words = "bwd bf16 head_dim=" + std::to_string(C.head_dim) + " " + sizes;
  test::BackwardOnHost world(C.right_bound ? words + " causal" : words, C.block_m);
  std::vector<float> a(100 + test::index_of(world.problem.seqlen_kv));
  for (std::size_t i = 0; i < a.size(); ++i) a[i] = 0.125f * static_cast<float>(i * 5 % 9) - 0.4f;
  const auto [wanted, wanted_dk] = sums_of_pairs<kSum>(world, a);
  constexpr double kRounded = 1e-4, kDsRounded = 4.0 / 256;  // P has 24 bits, dS of products 8
  for (const test::Pace& pace : test::kPaces) {
    test::Machine machine;
    machine.late = pace.late, machine.slow_warp = pace.slow_warp;
    std::vector<float> sums(a.size());
    const RowsResult result = run_kernel<C, PiecesOfKeys<C, kSum>>(world, a.data(), sums.data(),
                                                                   blocks, machine);
    EXPECT_EQ(result.failure, "") << pace.name;
    for (std::size_t i = 0; i < a.size(); ++i)
      EXPECT_NEAR(sums[i], wanted[i].sum, kRounded * std::sqrt(wanted[i].squares) + 1e-5)
          << i << " " << pace.name;
    for (std::size_t i = 0; i < wanted_dk.size(); ++i)
      ASSERT_NEAR(result.dk[i], wanted_dk[i].sum,
                  kDsRounded * std::sqrt(wanted_dk[i].squares) + 1e-5)
          << "dk " << i << " " << pace.name;
  }
}

constexpr BwdWgmmaSm90aConfig config_of_keys(RowsCase of) {
  BwdWgmmaSm90aConfig c = config_of_rows(of);
  c.dargs = 1;
  return c;
}
TEST(BwdKeySumsOnTheHost, AreThoseOfAllPairsAndSoIsDk) {
  constexpr auto kCausal = config_of_keys({64, 1, kDqFirst, kDqFromRegs, kGridPlain});
  expect_sums_over_queries<kCausal, true>("batch=2 num_heads=4:2 seqlen=150:200", 0);
  expect_sums_over_queries<kCausal, false>("batch=2 num_heads=4:2 seqlen=150:200", 0);
  expect_sums_over_queries<kCausal, false>("batch=1 num_heads=2 seqlen=160:60", 0);
  constexpr auto kFull = config_of_keys({64, 0, 0, kDqInOrder, kGridPlain});
  expect_sums_over_queries<kFull, true>("batch=1 num_heads=2 seqlen=100:133", 0);
  expect_sums_over_queries<kFull, false>("batch=1 num_heads=2 seqlen=100:133", 0);
  constexpr auto kPersistent = config_of_keys({64, 1, kDqFirst, kDqFromDiagonal, kGridDynamic});
  expect_sums_over_queries<kPersistent, false>("batch=1 num_heads=2 seqlen=160:200", 2);
}

}  // namespace
}  // namespace attnforge
