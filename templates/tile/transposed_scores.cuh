// transposed_scores.cuh - the scores that a lane has in accumulators whose rows are keys and whose
// columns are queries, as the backward pass has them; seen by Score and Mask as those of
// fragment_scores.cuh are.
#pragma once

#include "base.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Array: float[fragments][4], of 16 keys by 8 queries. of_row(row, lane_key) is called once per
/// query and returns a function f(score, offset) of the score of key lane_key + offset.
template <class Array>
struct TransposedScores {
  static constexpr bool kCoarse = true;  // probabilities are rounded to 16 bits
  static constexpr int kFragments = sizeof(Array) / sizeof(float[4]);

  Array& all;
  int first_row;  // of the accumulators' first query
  int lane_key;   // of the accumulators' first key that this lane has

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    const int row = first_row + MmaFragment::column(thread_index() % 32);
#pragma unroll
    for (int j = 0; j < kFragments; ++j)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const auto f = of_row(row + j * 8 + c, lane_key);
        all[j][c] = f(all[j][c], 0);
        all[j][c + 2] = f(all[j][c + 2], 8);
      }
  }
};

}  // namespace attnforge
