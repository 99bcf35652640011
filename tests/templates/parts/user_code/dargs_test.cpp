// dargs_test.cpp - gradients of arrays that a score's text reads, on threads of the host: the
// derivative by each read beside differences, bwd_naive and the sums of a warp beside plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "tests/templates/backward/backward_world.h"
#include "backward/transposed_scores.cuh"
#include "oracle/bwd_naive/kernel.cuh"
#include "parts/user_code/params.h"
#include "parts/user_code/dargs.cuh"
#include "parts/user_code/mask.cuh"
#include "parts/user_code/score.cuh"
#include "parts/user_code/slope.cuh"
#include "pieces/window_mask.cuh"
// clang-format on

namespace attnforge {
namespace {

using namespace test;

constexpr int kWords = 4;
using CodeOfRun = WithCode<BwdNaiveParams, kWords>;
constexpr int kReach = 16;

/// The text of the struct below, whatever its arrays are.
#define ATTNFORGE_TEXT                \
  (s * 0.5f + slope[head] * (k - q) + \
   (k < q ? table[k - q + kReach] * s : tanhf(table[0] * 2)) * slope[(q + batch) % 2])
constexpr int kMostOfText = 4;

/// Texts as an entry has them. kMost: what it says of how many reads there are.
template <int kMost>
struct HostCode {
  using Words = CodeParams<kWords>;
  static constexpr bool kScoreReadsByKey = true, kMaskReadsByKey = false, kTanh = true;
  static constexpr int kMostReads = kMost;
  static constexpr bool kReadsWithoutQuery = false, kSlopeIsOne = false;

  template <class Tanh, class S>
  static auto score(const Words& code, const Tanh& tanhf, S s, int batch, int head, int q,
                    KeyPosition k, int, int) {
    const UserArray<float> slope(code.words[0]), table(code.words[1]);
    return value_of_score(ATTNFORGE_TEXT);
  }
  template <class Tanh, class S>
  static auto score_of_reads(const Words& code, const Tanh& tanhf, OneRead& reads, S s, int batch,
                             int head, int q, KeyPosition k, int, int) {
    const ReadArray<UserArray<float>> slope(code.words[0], code.words[2], reads);
    const ReadArray<UserArray<float>> table(code.words[1], code.words[3], reads);
    return value_of_score(ATTNFORGE_TEXT);
  }
};

struct Arrays {
  std::vector<float> slope{0.3f, -0.2f}, table = std::vector<float>(2 * kReach + 1);
  std::vector<float> dslope = std::vector<float>(4), dtable = std::vector<float>(4 * kReach + 2);

  Arrays() {
    for (std::size_t i = 0; i < table.size(); ++i) table[i] = 0.05f * float(i % 7) - 0.1f;
  }
  CodeParams<kWords> code() const {
    return {reinterpret_cast<u64>(slope.data()), reinterpret_cast<u64>(table.data()),
            reinterpret_cast<u64>(dslope.data()), reinterpret_cast<u64>(dtable.data())};
  }
};

/// What a row is to for_each_read.
struct HostRow {
  CodeParams<kWords> words;
  int batch, head, q, seqlen_q, seqlen_kv, k;
  template <bool>
  KeyPosition key(int offset) const {
    return {k, offset};
  }
};

template <int kMost>
void expect_derivatives_by_reads() {
  Arrays a;
  for (int q = 0; q < 6; ++q) {
    for (int k = 0; k < 6; ++k) {
      const HostRow row{a.code(), 1, q % 2, q, 6, 6, k};
      std::vector<double> dslope(2), dtable(a.table.size());
      int reads = 0;
      for_each_read<HostCode<kMost>>(
          row, slopes::TanhWithSlope<ExactTanh>(), 0.7f, 0, [](bool more) { return more; },
          [&](int n, float* gradient, i64 element, float slope) {
            if (gradient == nullptr) return;
            EXPECT_EQ(n, reads++);
            ASSERT_TRUE(gradient == a.dslope.data() || gradient == a.dtable.data());
            (gradient == a.dslope.data() ? dslope : dtable)[index(element)] += slope;
          });
      EXPECT_EQ(reads, 3);
      const auto difference = [&](float& x) {
        const float before = x, step = 1e-2f;
        const auto value = [&](float at) {
          x = at;
          const float s = static_cast<float>(HostCode<kMost>::score(
              row.words, ExactTanh(), 0.7f, 1, q % 2, q, KeyPosition{k, 0}, 6, 6));
          x = before;
          return double{s};
        };
        return (value(before + step) - value(before - step)) / (2 * double{step});
      };
      for (std::size_t i = 0; i < dslope.size(); ++i)
        EXPECT_NEAR(dslope[i], difference(a.slope[i]), 1e-3) << q << " " << k;
      for (std::size_t i = 0; i < dtable.size(); ++i)
        EXPECT_NEAR(dtable[i], difference(a.table[i]), 1e-3) << q << " " << k << " " << i;
    }
  }
}

TEST(ArrayReads, HaveTheDerivativeByEachOfThem) {
  expect_derivatives_by_reads<kMostOfText>();
  expect_derivatives_by_reads<0>();
}

/// Of all pairs, by the definition, in fp64.
void add_array_gradients(const BackwardWorld& w, const Arrays& a, std::vector<double>& dslope,
                         std::vector<double>& dtable) {
  const auto dot = [](const float* x, const float* y, int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += double{x[i]} * double{y[i]};
    return sum;
  };
  for (int row = 0; row < kBatch * kHeads * kQueries; ++row) {
    const int q = row % kQueries, head = row / kQueries % kHeads, batch = row / kQueries / kHeads;
    if (w.lse[index(row)] == -kInf) continue;
    const double delta = dot(&w.o[index(row * kDimV)], &w.dout[index(row * kDimV)], kDimV) -
                         w.dlse[index(row)];
    for (int k = 0; k < kKeys; ++k) {
      const int position = q + kKeys - kQueries;
      if (k < position - kWindowLeft || k > position + kWindowRight) continue;
      const int key_row = (batch * kHeadsKv + head / (kHeads / kHeadsKv)) * kKeys + k;
      const double s = kScale * dot(&w.q[index(row * kDim)], &w.k[index(key_row * kDim)], kDim);
      const std::size_t parity = index((q + batch) % 2), place = index(k < q ? k - q + kReach : 0);
      const double factor = a.slope[parity], entry = a.table[place];
      const double of_table = k < q ? entry * s : std::tanh(entry * 2);
      const double score = s * 0.5 + a.slope[index(head)] * double(k - q) + of_table * factor;
      const double dp = dot(&w.dout[index(row * kDimV)], &w.v[index(key_row * kDimV)], kDimV);
      const double ds = std::exp(score - w.lse[index(row)]) * (dp - delta);
      dslope[index(head)] += ds * (k - q);
      dslope[parity] += ds * of_table;
      dtable[place] += ds * factor * (k < q ? s : 2 * (1 - of_table * of_table));
    }
  }
}

template <int kMost>
struct CodePieces {
  using Lengths = FixedLengths;
  using Score = UserScore<HostCode<kMost>>;
  using Slope = UserSlope<HostCode<kMost>>;
  using Dargs = DargsOfRows<HostCode<kMost>, UserRow<HostCode<kMost>>>;
};

TEST(BwdNaive, AddsToTheGradientsOfArrays) {
  constexpr BwdNaiveConfig kConfig = [] {
    BwdNaiveConfig c{shape(false, false), 64};
    c.user_score = c.dargs = 1;
    return c;
  }();
  for (const bool of_oracle : {false, true}) {
    BackwardWorld w(false);
    Arrays a;
    std::vector<double> dslope{1, 2}, dtable(a.table.size());
    if (!of_oracle) a.dslope[0] = 1, a.dslope[1] = 2;  // is added to
    if (of_oracle) a.dslope[0] = 1, a.dslope[2] = 2;   // beside the sums of sizes
    add_array_gradients(w, a, dslope, dtable);
    std::vector<float> norms(4096);
    if (of_oracle) {
      w.params.dq_norms = w.params.dk_norms = w.params.dv_norms = norms.data();
      w.params.num_queries = w.params.num_keys = 0;  // no list has rows
      w.params.query_blocks = w.params.row_blocks = 0;
    }
    CodeOfRun params{};
    static_cast<BwdNaiveParams&>(params) = w.params;
    params.code = a.code();
    const int blocks = w.blocks() + kBatch * kHeads * ceil_div(kQueries, BwdNaiveConfig::kRows);
    run_on_host(static_cast<unsigned>(blocks), 64,
                [&] { BwdNaive<kConfig, CodePieces<kMostOfText>, CodeOfRun>::run(params); });
    const auto expect = [&](const std::vector<float>& actual, const std::vector<double>& expected) {
      double largest = 0;
      for (const double x : expected) largest = std::max(largest, std::abs(x));
      const std::size_t apart = of_oracle ? 2 : 1;
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(actual[i * apart], expected[i], 2e-5 * largest) << i;
        if (of_oracle && expected[i] != 0)
          EXPECT_GE(actual[i * apart + 1] * 1.0001, std::abs(expected[i]) - 2) << i;
      }
    };
    expect(a.dslope, dslope);
    expect(a.dtable, dtable);
  }
}

/// A tile of 16 rows, of a head each two lanes know nothing of.
struct HostTile {
  const CodeOfRun& params;
  int batch, head;
  FixedLengths lengths;
  static int query_of(int row) { return row; }
  int query_head_of(int) const { return head; }
};

/// Elements of all kinds: one for all, one for each row, for each key, for both, for none.
struct KindsCode {
  using Words = CodeParams<kWords>;
  static constexpr bool kScoreReadsByKey = true;
  static constexpr int kMostReads = 4;
  static constexpr bool kReadsWithoutQuery = false, kSlopeIsOne = false;

  template <class Tanh, class S>
  static auto score_of_reads(const Words& code, const Tanh&, OneRead& reads, S s, int, int head,
                             int q, KeyPosition k, int, int) {
    const ReadArray<UserArray<float>> a(code.words[0], code.words[1], reads);
    return value_of_score((s + a[head] + a[10 + q] * 2 + a[100 + k] * 3 +
                           (k < q ? a[300 + k - q] * 4 : S(0.0f, 0.0f))));
  }
};

TEST(DargsOfRows, AddUpWhatLanesHaveInCommon) {
  using Scores = float[1][2][4];
  constexpr int kRows = 40, kFirstRow = 16, kFirstKey = 8, kHead = 3, kTiles = 2;
  std::vector<float> array(400), gradient(400);
  std::vector<double> expected(400);
  CodeOfRun params{};
  params.fwd.seqlen_q = kRows, params.fwd.seqlen_kv = 64, params.fwd.softmax_scale = 1;
  params.code = {reinterpret_cast<u64>(array.data()), reinterpret_cast<u64>(gradient.data())};
  using Dargs = DargsOfRows<KindsCode, UserRow<KindsCode>>;
  std::mt19937 random(3);
  Scores p[kTiles][32], dp[kTiles][32];
  for (int tile = 0; tile < kTiles; ++tile) {
    for (int lane = 0; lane < 32; ++lane) {
      for (int j = 0; j < 2; ++j) {
        for (int i = 0; i < 4; ++i) {
          const bool masked = random() % 4 == 0;
          float& of_p = p[tile][lane][0][j][i] = masked ? 0 : float(random() % 8) / 8;
          float& of_dp = dp[tile][lane][0][j][i] = masked ? NAN : float(random() % 64) / 8 - 4;
          if (of_p == 0) continue;
          const int row = kFirstRow + lane / 4 + i / 2 * 8;
          const int key = kFirstKey + 16 * tile + lane % 4 * 2 + j * 8 + i % 2;
          const double ds = of_p * (of_dp - 0.5);
          expected[kHead] += ds;
          expected[index(10 + row)] += 2 * ds;
          expected[index(100 + key)] += 3 * ds;
          if (key < row) expected[index(300 + key - row)] += 4 * ds;
        }
      }
    }
  }
  run_on_host(1, 32, [&] {
    const int lane = static_cast<int>(threadIdx.x);
    const HostTile tile{params, 0, kHead, FixedLengths(params, 0)};
    typename Dargs::Sums<2> sums;
    const float delta[1][2] = {{0.5f, 0.5f}};
    const auto view_of = [](Scores& x) { return &x; };
    for (int i = 0; i < kTiles; ++i) {
      const Scores scores{};
      Dargs::add(sums, scores, p[i][lane], dp[i][lane], delta, view_of, tile, kFirstRow + lane / 4,
                 kFirstKey + 16 * i);
    }
    sums.finish();
  });
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(gradient[i], expected[i], 1e-4) << i;
}

/// Elements that no query chooses: of a head, of a key, of one key alone for every key.
struct KeysCode {
  using Words = CodeParams<kWords>;
  static constexpr bool kScoreReadsByKey = true, kReadsWithoutQuery = true, kSlopeIsOne = false;
  static constexpr int kMostReads = 3;

  template <class Tanh, class S>
  static auto score_of_reads(const Words& code, const Tanh&, OneRead& reads, S s, int, int head,
                             int q, KeyPosition k, int, int) {
    const ReadArray<UserArray<float>> a(code.words[0], code.words[1], reads);
    return value_of_score((s * a[head] + a[100 + k] * a[7] + 0.5f * float(q)));
  }
};

TEST(DargsOfRows, AddUpTheQueriesOfATileForEachKey) {
  constexpr int kFragments = 3, kRows = 60, kKeys = 37, kHead = 3, kFirstRow = 40;
  using Scores = float[kFragments][4];
  std::vector<float> array(200), gradient(200);
  for (std::size_t i = 0; i < array.size(); ++i) array[i] = 0.25f * float(i % 7) - 0.5f;
  std::vector<double> expected(200);
  CodeOfRun params{};
  params.fwd.seqlen_q = kRows, params.fwd.seqlen_kv = kKeys, params.fwd.softmax_scale = 0.5f;
  params.code = {reinterpret_cast<u64>(array.data()), reinterpret_cast<u64>(gradient.data())};
  using Dargs = DargsOfRows<KeysCode, UserRow<KeysCode>>;
  std::mt19937 random(3);
  for (const int first_key : {0, 16, 32}) {  // of the last tile most are after the last key
    Scores ds[32], scores[32];
    for (int lane = 0; lane < 32; ++lane) {
      for (int j = 0; j < kFragments; ++j) {
        for (int i = 0; i < 4; ++i) {
          const int row = kFirstRow + 8 * j + lane % 4 * 2 + i % 2;
          const int key = first_key + lane / 4 + i / 2 * 8;
          const bool seen = row < kRows && key < kKeys && random() % 4 != 0;
          ds[lane][j][i] = seen ? float(random() % 64) / 8 - 4 : 0;
          scores[lane][j][i] = seen ? float(random() % 64) / 8 - 4 : INFINITY;
          if (!seen) continue;
          const double x = ds[lane][j][i];
          expected[kHead] += x * scores[lane][j][i] * 0.5;
          expected[index(100 + key)] += x * array[7];
          expected[7] += x * array[index(100 + key)];
        }
      }
    }
    run_on_host(1, 32, [&] {
      const int lane = static_cast<int>(threadIdx.x);
      const HostTile tile{params, 0, kHead, FixedLengths(params, 0)};
      const int lane_key = first_key + lane / 4;
      Dargs::add_keys(TransposedScores<Scores>{ds[lane], kFirstRow, lane_key},
                      TransposedScores<Scores>{scores[lane], kFirstRow, lane_key}, tile);
    });
  }
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(gradient[i], expected[i], 1e-3) << i;
}

}  // namespace
}  // namespace attnforge
