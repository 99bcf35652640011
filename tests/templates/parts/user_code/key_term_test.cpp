// key_term_test.cpp - a term that rows with the same key share, on a warp of the host: what
// UserScore makes of each pair by itself, and asked for as often as there are keys.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "base.cuh"
#include "base_params.h"
#include "parts/user_code/params.h"
#include "parts/user_code/key_term.cuh"
#include "pieces/fixed_lengths.cuh"
// clang-format on

namespace attnforge {
namespace {

using namespace test;

struct RunParams {
  FwdParams fwd;
  CodeParams<2> code;
};
std::atomic<int> asked;

/// score="s + bias[k] - 0.25f * k"
struct TermCode {
  using Words = CodeParams<2>;
  static constexpr bool kScoreReadsByKey = true, kTanh = false;

  template <class Tanh, class S>
  static auto score(const Words& words, const Tanh&, S s, int, int, int, KeyPosition k, int, int) {
    ++asked;
    const UserArray<float> bias(words.words[0]);
    return value_of_score((s + bias[k] - 0.25f * k));
  }
};

struct HostTile {
  const RunParams& params;
  int batch;
  FixedLengths lengths;
  static int query_of(int row) { return row; }
  static int query_head_of(int) { return 0; }
};

/// View of a lane's scores, whose number is `lane`.
template <class Scores, class ViewOf>
void expect_terms(int keys, int asks, const ViewOf& view_of) {
  RunParams params{};
  std::vector<float> bias(static_cast<std::size_t>(keys));
  for (std::size_t i = 0; i < bias.size(); ++i) bias[i] = float(i * 7 % 11);
  params.fwd.seqlen_q = 100, params.fwd.seqlen_kv = keys, params.fwd.softmax_scale = 0.125f;
  params.code.words[0] = reinterpret_cast<u64>(bias.data());
  struct Lane {
    Scores scores;
  };
  std::vector<Lane> terms(32), pairs(32);
  constexpr int kOfLane = sizeof(Scores) / sizeof(float);
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (int i = 0; i < kOfLane; ++i)
      reinterpret_cast<float*>(&terms[lane])[i] = reinterpret_cast<float*>(
          &pairs[lane])[i] = float(lane) - 3 * float(i);
  const auto run = [&]<class Score>(std::vector<Lane>& of, Score) {
    asked = 0;
    run_on_host(1, 32, [&] {
      const int lane = static_cast<int>(threadIdx.x);
      const HostTile tile{params, 0, FixedLengths(params, 0)};
      Score::apply(view_of(of[static_cast<std::size_t>(lane)].scores, lane), tile);
    });
    return asked.load();
  };
  EXPECT_EQ(run(terms, KeyTermScore<TermCode>()), asks);
  EXPECT_EQ(run(pairs, UserScore<TermCode>()), 32 * kOfLane);
  for (std::size_t lane = 0; lane < 32; ++lane)
    for (int i = 0; i < kOfLane; ++i)
      EXPECT_NEAR(reinterpret_cast<float*>(&terms[lane])[i],
                  reinterpret_cast<float*>(&pairs[lane])[i], 1e-4)
          << lane << " " << i;
}

TEST(KeyTermScore, AddsWhatEachPairWouldAndAsksOnceAKey) {
  using Rows = float[5][4];  // 40 keys: a lane asks for an eighth of its ten, made whole
  expect_terms<Rows>(37, 32 * 2, [](Rows& scores, int lane) {
    return FragmentScores<Rows>{scores, lane / 4, 0};
  });
  using RowsOfSteps = float[2][4][4];
  expect_terms<RowsOfSteps>(99, 32, [](RowsOfSteps& scores, int lane) {
    return FragmentScores<RowsOfSteps>{scores, lane / 4, 64};
  });
  using Transposed = float[3][4];
  expect_terms<Transposed>(20, 32 * 2, [](Transposed& scores, int lane) {
    return TransposedScores<Transposed>{scores, 8, 8 + lane / 4};
  });
  using SeveralKeys = float[2][3][4];
  expect_terms<SeveralKeys>(64, 32 * 4, [](SeveralKeys& scores, int lane) {
    return TransposedScores<SeveralKeys>{scores, 8, 8 + lane / 4};
  });
}

}  // namespace
}  // namespace attnforge
