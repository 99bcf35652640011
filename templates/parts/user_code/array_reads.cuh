// array_reads.cuh - what a score's text reads of arrays whose gradients are wanted: the text is
// compiled once more with arrays whose elements carry a derivative, that of one read 1, all others
// 0, and which note where that read was.
#pragma once

#include "base.cuh"
#include "parts/user_code/score_with_slope.cuh"

namespace attnforge {

/// Picks the read number `wanted` of one evaluation of the text.
struct OneRead {
  int wanted;
  int count = 0;              // of reads so far
  float* gradient = nullptr;  // of the array that the wanted one was of; null: the text has made
                              // fewer
  i64 element = 0;            // and which

  ATTNFORGE_DEVICE float slope_of(float* of, i64 at) {
    if (count++ != wanted) return 0.0f;
    gradient = of;
    element = at;
    return 1.0f;
  }
};

/// An array of a text, whose gradient is wanted. It is read by [] and nothing else: by another
/// pointer to it the derivative would be lost.
template <class Array>
struct ReadArray {
  const Array array;
  float* gradient;
  OneRead& reads;

  ATTNFORGE_DEVICE ReadArray(u64 word, u64 gradient_word, OneRead& one)
      : array(word), gradient(reinterpret_cast<float*>(gradient_word)), reads(one) {}
  template <class Index>
  ATTNFORGE_DEVICE slopes::ScoreWithSlope operator[](Index i) const {
    static_assert(!kReal<Index>, "an index is a whole number");
    return {static_cast<float>(array[i]), reads.slope_of(gradient, static_cast<i64>(i))};
  }
};

/// Calls add(n, gradient, element, slope) for each read n that the text makes for a row and a key:
/// of which array and element, and the derivative of the score with respect to what was read. `s`
/// is the score that the text takes. Where the compiler knows how many reads there are, so is n.
/// Else any(condition) says how long to go on: with any_lane() all lanes of a warp call add
/// together, those that have made fewer reads with null.
template <class Code, class Row, class Tanh, class Any, class Add>
ATTNFORGE_DEVICE void for_each_read(const Row& row, const Tanh& tanh, float s, int offset,
                                    const Any& any, const Add& add) {
  const auto one = [&](int n) {
    OneRead read{n};
    const auto score = Code::score_of_reads(
        row.words, tanh, read, slopes::ScoreWithSlope(s, 0.0f), row.batch, row.head, row.q,
        row.template key<Code::kScoreReadsByKey>(offset), row.seqlen_q, row.seqlen_kv);
    add(n, read.gradient, read.element, slopes::slope_of(score));
    return read.count;
  };
  if constexpr (Code::kMostReads > 0) {
#pragma unroll
    for (int n = 0; n < Code::kMostReads; ++n) one(n);
  } else {
    int count = 1;
#pragma unroll 1
    for (int n = 0; any(n < count); ++n) count = one(n);
  }
}

}  // namespace attnforge
