// plain_score.cuh - Score of attention without any function of scores.
#pragma once

#include "base.cuh"

namespace attnforge {

struct PlainScore {
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores&, const QueryTile&) {}
};

}  // namespace attnforge
