// bwd_sinks_test.cpp - the step that sums up the gradients of sinks, on threads of the host, of any
// number of sequences and rows: a thread that comes to the end of a sequence's goes on with the
// next.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "oracle/bwd_naive/config.h"
#include "backward/params.h"
#include "parts/sinks/params.h"
#include "pieces/fixed_lengths.cuh"
#include "parts/sinks/step_gradient.cuh"
// clang-format on

namespace attnforge {
namespace {

template <bool kAccumulate>
void expect_sums(int batch, int rows_padded) {
  SCOPED_TRACE(std::to_string(batch) + " sequences of " + std::to_string(rows_padded) + " rows");
  constexpr int kHeads = 3;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto rows = static_cast<std::size_t>(batch * kHeads * rows_padded);
  std::vector<float> lse(rows), delta(rows), logits(kHeads), dsinks = {5, -6, 7};
  for (auto* all : {&lse, &delta, &logits})
    for (float& x : *all) x = normal(random);
  std::vector<double> wanted(kHeads);
  for (std::size_t head = 0; head < kHeads; ++head) {
    if (kAccumulate) wanted[head] = double{dsinks[head]};
    for (std::size_t i = 0; i < rows; ++i)
      if (i / static_cast<std::size_t>(rows_padded) % kHeads == head)
        wanted[head] -= std::exp2(double{logits[head]} / std::log(2.0) - double{lse[i]}) *
                        double{delta[i]};
  }
  constexpr auto kConfig = [] {
    BwdNaiveConfig c{};
    c.accumulate = kAccumulate;
    return c;
  }();
  using Sinks = BwdSinks<kConfig, FixedLengths>;
  WithSinks<BwdStepParams> params{};
  params.sinks.logits = logits.data();
  params.fwd.batch = batch, params.fwd.num_heads_q = kHeads;
  params.scratch = {lse.data(), delta.data(), nullptr, rows_padded, 0};
  params.dsinks = dsinks.data();
  test::run_on_host(kHeads, Sinks::kThreads, [&] { Sinks::run(params); });
  for (std::size_t head = 0; head < kHeads; ++head)
    EXPECT_NEAR(dsinks[head], wanted[head], 1e-4 * std::sqrt(double(rows)) + 1e-6) << head;
}

TEST(BwdSinks, AddsEachRowOfEachSequenceOnce) {
  expect_sums<false>(2, 1024);  // a sequence in one round of the block
  expect_sums<false>(3, 1040);  // more, and threads come to the next one at different times
  expect_sums<true>(200, 12);   // many sequences in a round, of which the last is cut
  expect_sums<true>(300, 4);
  expect_sums<false>(5, 516);
}

TEST(BwdSinks, OfNothingIsNothing) {
  expect_sums<false>(0, 16);
  expect_sums<false>(3, 0);
  expect_sums<true>(0, 0);
}

}  // namespace
}  // namespace attnforge
