// fragment_scores.cuh - a lane's scores in accumulators of mma.sync or wgmma, and whose they are.
#pragma once

#include "ptx/mma_fragment.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Replaces each of a lane's scores in accumulators of 16 rows by 8 keys. of_row(row, lane_key) is
/// called once per row and returns a function f(score, offset) of the score of key lane_key +
/// offset, where offset is known to the compiler: what depends on the row alone is computed once.
/// `row` is of the accumulators' first row that this lane has, first_key of their first key.
template <int kFragments, class OfRow>
ATTNFORGE_DEVICE void for_each_score(float (&s)[kFragments][4], int row, int first_key,
                                     const OfRow& of_row) {
  const int lane_key = first_key + MmaFragment::column(thread_index() % 32);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto f = of_row(row + 8 * r, lane_key);
    unrolled<kFragments, 2>([&](int j, int c) { s[j][2 * r + c] = f(s[j][2 * r + c], j * 8 + c); });
  }
}

/// for_each_score() of accumulators for several times 16 rows.
template <int kRowFragments, int kFragments, class OfRow>
ATTNFORGE_DEVICE void for_each_score(float (&s)[kRowFragments][kFragments][4], int row,
                                     int first_key, const OfRow& of_row) {
  unrolled<kRowFragments>([&](int f) { for_each_score(s[f], row + 16 * f, first_key, of_row); });
}

/// Scores as Score and Mask take them: an array `all` of them, and for_each().
template <class Array>
struct FragmentScores {
  static constexpr bool kCoarse = true;  // probabilities are rounded to 16 bits

  Array& all;
  int row;
  int first_key;

  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const OfRow& of_row) const {
    for_each_score(all, row, first_key, of_row);
  }

  /// A row's scores before key `end` as bits: a lane has two of eight keys.
  template <int kWords>
  struct Bits {
    u32 words[kWords];

    ATTNFORGE_DEVICE explicit Bits(int end) {
      const int before = max(end, 0) / 8 * 2 + min(max(end, 0) % 8, 2);
      unrolled<kWords>([&](int w) { words[w] = low_bits(max(before - 32 * w, 0)); });
    }
    ATTNFORGE_DEVICE bool has(int i) const { return (words[i / 32] >> (i % 32) & 1) != 0; }
  };
};

/// -inf to the scores of keys outside of keys_of(row), which is VisibleKeys: bits go to predicates
/// several at a time. kLeft: there is a left bound too.
template <bool kLeft, int kFragments, class KeysOf>
ATTNFORGE_DEVICE void hide_outside(const FragmentScores<float[kFragments][4]>& scores,
                                   const KeysOf& keys_of) {
  using Bits = typename FragmentScores<float[kFragments][4]>::template Bits<ceil_div(kFragments,
                                                                                     16)>;
  const int lane_key = scores.first_key + MmaFragment::column(thread_index() % 32);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto keys = keys_of(scores.row + 8 * r);
    const Bits before_end(keys.last + 1 - lane_key),
        before_first(kLeft ? keys.first - lane_key : 0);
    unrolled<2 * kFragments>([&](int i) {
      if (!before_end.has(i) || (kLeft && before_first.has(i)))
        scores.all[i / 2][2 * r + i % 2] = negative_infinity();
    });
  }
}

}  // namespace attnforge
