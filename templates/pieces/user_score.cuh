// user_score.cuh - Score by the user's text.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "pieces/plain_score.cuh"
#include "pieces/user_code.cuh"

namespace attnforge {

/// Scores after softmax_scale, and after Before, to those of the text. Code is the entry's
/// UserCode.
template <class Code, class Before = PlainScore>
struct UserScore {
  static constexpr bool kScaled = true;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    const float scale = tile.p.softmax_scale;
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row);
      return [user, lane_key, scale](float s, int offset) {
        return user.score(s * scale, lane_key, offset);
      };
    });
  }

  /// One score, scaled and capped already.
  template <class Lengths>
  ATTNFORGE_DEVICE static float of_pair(const FwdParams& p, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float s) {
    return UserRow<Code>(p, lengths, sequence, head, query).score(s, key, 0);
  }
};

}  // namespace attnforge
