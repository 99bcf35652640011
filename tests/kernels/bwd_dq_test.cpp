// bwd_dq_test.cpp - the step that writes dq beside the last blocks of a kernel that counts what it
// has added, on threads of the host.
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
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "reference/half.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "backward/params.h"
#include "bwd_wgmma_sm90a/config.h"
#include "pieces/fixed_lengths.cuh"
#include "backward/step_dq.cuh"
#include "backward/dq_tile.cuh"
#include "backward/turns.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kRows = 64, kColumns = 64, kTile = kRows * kColumns;  // a tile is a head's
constexpr int kBatch = 2, kHeads = 4, kKvHeads = 2, kAllHeads = kBatch * kHeads, kParts = 3;

constexpr BwdWgmmaSm90aConfig config() {
  BwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = kColumns;
  c.alignment = 16;
  c.fp32_gradients = 1;
  return c;
}

TEST(BwdDqOnTheHost, WritesAHeadOnceAllPartsOfItsKeysHaveAdded) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr int kLast = 2;  // a K/V head of both sequences', whose query heads are 4 and 5
  std::vector<float> sums(kAllHeads * kTile), dq(sums.size(), kNan);
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = static_cast<float>(i % 1000);
  const std::vector<float> wanted = sums;
  std::fill_n(sums.begin() + 4 * kTile, 2 * kTile, kNan);
  // Nobody looks at what lies before and after the K/V heads.
  std::vector<int> counters(3 * kBatch * kKvHeads, -1);
  int* const added = &counters[kBatch * kKvHeads];
  std::fill_n(added, kBatch * kKvHeads, kParts);
  added[kLast] = kParts - 1;

  BwdStepParams params{};
  params.fwd.batch = kBatch, params.fwd.num_heads_q = kHeads, params.fwd.num_heads_kv = kKvHeads;
  params.fwd.seqlen_q = kRows, params.fwd.seqlen_kv = 1, params.fwd.softmax_scale = 0.5f;
  params.dq = {dq.data(), kHeads * kTile, kColumns, kTile};
  params.scratch = {nullptr, nullptr, sums.data(), kRows, kColumns};
  params.added = added, params.parts_of_head = kParts;

  using Step = BwdDq<config(), FixedLengths, RowMajorDqTile<kRows, kColumns>, 0>;
  test::Machine machine;
  const std::string failure = test::run_together(machine, kAllHeads, Step::kThreads, 0, [&] {
    Step::run(params);
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    std::copy_n(wanted.begin() + 4 * kTile, 2 * kTile, sums.begin() + 4 * kTile);
    pass_turn(&added[kLast]);
  });
  ASSERT_EQ(failure, "");
  for (std::size_t i = 0; i < dq.size(); ++i) ASSERT_EQ(dq[i], 0.5f * wanted[i]) << i;
}

}  // namespace
}  // namespace attnforge
