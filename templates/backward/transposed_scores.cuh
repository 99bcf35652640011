// transposed_scores.cuh - the scores of a lane in accumulators whose rows are keys and columns are
// queries; seen by Score and Mask as those of fragment_scores.cuh are.
#pragma once

#include "ptx/mma_fragment.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Array: float[fragments][4], of 16 keys by 8 queries, or of several times 16 keys
/// float[key fragments][fragments][4]. of_row(row, lane_key) is called once per query and returns a
/// function f(score, offset) of the score of key lane_key + offset.
template <class Array>
struct TransposedScores {
  static constexpr bool kCoarse = true;  // probabilities are rounded to 16 bits

  Array& all;
  int first_row;  // of the accumulators' first query
  int lane_key;   // of the accumulators' first key that this lane has

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    for_each(all, of_row);
  }

 private:
  template <int kKeyFragments, int kFragments, class OfRow>
  ATTNFORGE_DEVICE void for_each(float (&s)[kKeyFragments][kFragments][4],
                                 const OfRow& of_row) const {
    const int row = first_row + MmaFragment::column(thread_index() % 32);
    unrolled<kFragments, 2>([&](int j, int c) {
      const auto f = of_row(row + j * 8 + c, lane_key);
      unrolled<kKeyFragments, 2>(
          [&](int i, int r) { s[i][j][2 * r + c] = f(s[i][j][2 * r + c], i * 16 + r * 8); });
    });
  }
  template <int kFragments, class OfRow>
  ATTNFORGE_DEVICE void for_each(float (&s)[kFragments][4], const OfRow& of_row) const {
    for_each(reinterpret_cast<float(&)[1][kFragments][4]>(s), of_row);
  }
};

}  // namespace attnforge
