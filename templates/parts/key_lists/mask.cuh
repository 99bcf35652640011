// mask.cuh - Mask of gathered key tiles: groups that rows do not see, windows, and rules of pairs.
#pragma once

#include "parts/key_lists/groups.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// A rule that hides nothing: of block masks whose blocks are all or nothing.
struct NoRule {
  static constexpr bool kNone = true;
};

/// Window is the mask of windows and of the last key; Rule a Mask for groups that are partial.
template <class Window, class Rule>
struct ListMask {
  using PairRule = Rule;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    if (!scores.sees_all()) {
#pragma unroll
      for (int part = 0; part < Scores::kParts; ++part) {
        const bool seen = scores.seen(part);
        scores.of_part(part, [&](int, int) {
          return [seen](float s, int) { return seen ? s : negative_infinity(); };
        });
      }
    }
    if (scores.edge()) Window::apply(scores, tile);
    if constexpr (!Rule::kNone) {
#pragma unroll
      for (int part = 0; part < Scores::kParts; ++part)
        if (scores.partial(part)) Rule::apply(PartOfScores<Scores>{scores, part}, tile);
    }
  }
};

}  // namespace attnforge
