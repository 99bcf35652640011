// clear_rest_test.cpp - the kernel that clears rows after packed sequences, on threads of the host.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/ops/clear_rest/kernel.cuh"
#include "templates/ops/clear_rest/host.h"
// clang-format on

namespace attnforge {
namespace {

/// An array between canaries: all bytes are 7.
struct Cleared {
  static constexpr i64 kCanaries = 64;
  std::vector<float4> memory;
  RowsToClear array;
  int begin;

  Cleared(int begin_, i64 rows, i64 row_bytes, i64 pieces, i64 shift = 0)
      : memory(std::size_t(2 * kCanaries + rows * row_bytes * pieces) / 16 + 2), begin(begin_) {
    std::memset(static_cast<void*>(memory.data()), 7, memory.size() * 16);
    array = {bytes() + kCanaries + shift, &begin, rows, row_bytes, pieces};
  }
  Cleared(const Cleared&) = delete;
  char* bytes() { return reinterpret_cast<char*>(memory.data()); }

  /// Whether zeros are where they belong, and nowhere else.
  void expect_rest() {
    const i64 first = begin < 0 ? 0 : begin, of_piece = array.rows * array.row_bytes;
    const i64 at = static_cast<char*>(array.data) - bytes();
    for (i64 i = 0; i < i64(memory.size()) * 16; ++i) {
      const bool inside = i >= at && i < at + of_piece * array.pieces;
      const bool is_rest = inside && (i - at) % of_piece / array.row_bytes >= first;
      ASSERT_EQ(bytes()[i], is_rest ? 0 : 7) << i - at << " from row " << begin;
    }
  }
};

TEST(ClearRest, SetsRowsAfterTheLastSequenceToZerosAndNoOthers) {
  for (const int begin : {0, 1, 96, 100, 101, -3, 1 << 30}) {
    // o or a gradient; lse of 5 heads; rows that are no multiple of 16 bytes; one that lies oddly.
    Cleared rows(begin, 100, 2 * 24 * 2, 1), lse(begin, 100, 4, 5), odd(begin, 101, 24, 1),
        shifted(begin, 100, 32, 1, 4);
    const std::vector<RowsToClear> arrays{rows.array, lse.array, odd.array, shifted.array};
    const LaunchStep step = clear_rest_step(arrays, 132);
    ClearRestParams params;
    std::memcpy(&params, step.params.data(), sizeof(params));
    ASSERT_EQ(step.params.size(), sizeof(params));
    for (const unsigned blocks : {step.grid.x, 12u}) {
      test::run_on_host(blocks, ClearRest::kThreads, [&] { ClearRest::run(params); });
      for (Cleared* each : {&rows, &lse, &odd, &shifted}) each->expect_rest();
    }
  }
}

TEST(ClearRest, HasBlocksForEachArrayAndNoMoreThanSms) {
  const int begin = 0;
  const RowsToClear small{nullptr, &begin, 10, 256, 1}, large{nullptr, &begin, 8192, 14336, 1};
  EXPECT_EQ(clear_rest_step(std::vector{small}, 132).grid.x, 1u);
  EXPECT_EQ(clear_rest_step(std::vector{small, large, small}, 132).grid.x, 3u * 132);
}

}  // namespace
}  // namespace attnforge
