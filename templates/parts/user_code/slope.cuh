// slope.cuh - Slope of the user's score text: the text, of a score that carries its derivative.
#pragma once

#include "backward/plain_slope.cuh"
#include "parts/user_code/code.cuh"
#include "parts/user_code/score_with_slope.cuh"
#include "pieces/plain_score.cuh"

namespace attnforge {

/// The Slope of scores after Before, whose derivative is BeforeSlope. Code is the entry's UserCode.
template <class Code, class Before = PlainScore, class BeforeSlope = PlainSlope>
struct UserSlope {
  static constexpr bool kOne = false;
  static constexpr bool kOfPair = true;

  ATTNFORGE_DEVICE explicit UserSlope(const FwdParams&) {}

  /// Replaces scores, as they are before Score, by the derivatives of what Score makes of them.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    const BeforeSlope before(tile.params.fwd);
    const float scale = tile.params.fwd.softmax_scale;
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      return [user, before, scale](float s, int offset) {
        const float slope = of_score(user, slopes::TanhWithSlope<QuotientTanh>(), s * scale,
                                     offset);
        return BeforeSlope::kOne ? slope : slope * before(s);
      };
    });
  }

  /// The slope of one score, scaled and capped already.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static float of_pair(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float s) {
    return of_score(UserRow<Code>(params, lengths, sequence, head, query, key),
                    slopes::TanhWithSlope<ExactTanh>(), s, 0);
  }

 private:
  template <class Tanh>
  ATTNFORGE_DEVICE static float of_score(const UserRow<Code>& user, const Tanh& tanh, float s,
                                         int offset) {
    return slopes::slope_of(user.score(tanh, slopes::ScoreWithSlope(s, 1.0f), offset));
  }
};

}  // namespace attnforge
