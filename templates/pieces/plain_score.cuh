// plain_score.cuh - Score of attention without any function of scores.
#pragma once

#include "base.cuh"

namespace attnforge {

/// What a Score reads of memory for a tile's scores before these are there: nothing.
struct NothingAhead {
  static constexpr bool kReads = false;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void begin(const Scores&, const QueryTile&) {}
  template <class Score, class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Score::apply(scores, tile);
  }
};

struct PlainScore {
  /// Whether scores are multiplied by softmax_scale here; else the softmax does that.
  static constexpr bool kScaled = false;
  /// Whether its Series can make it part of the softmax's exponent.
  static constexpr bool kSeries = false;
  template <class Scores>
  using Ahead = NothingAhead;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores&, const QueryTile&) {}
};

}  // namespace attnforge
