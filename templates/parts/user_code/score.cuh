// score.cuh - Score by the user's text.
#pragma once

#include "parts/user_code/code.cuh"
#include "pieces/plain_score.cuh"
#include "ptx/shuffle.cuh"
#include "tile/tanh.cuh"

namespace attnforge {

/// For types of expressions that are not evaluated.
template <class T>
ATTNFORGE_DEVICE T a_value();

/// Scores after softmax_scale, and after Before, to those of the text. Code is the entry's
/// UserCode.
template <class Code, class Before = PlainScore>
struct UserScore {
  static constexpr bool kSeries = false;
  /// Whether scores come out scaled: the text does something with them.
  static constexpr bool
      kScaled = !kSame<decltype(Code::score(a_value<const typename Code::Words&>(), ExactTanh(),
                                            ScaledScore(), 0, 0, 0, KeyPosition(), 0, 0)),
                       ScaledScore>;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    if constexpr (Code::kTanh && Scores::kCoarse) {
      float top = 0.0f;
      const float scale = tile.params.fwd.softmax_scale;
      scores.for_each([&](int row, int lane_key) {
        const UserRow<Code> user(tile, row, lane_key);
        return [user, scale, &top](float s, int offset) {
          user.score(NotingTanh{top}, ScaledScore{s, scale}, offset);
          return s;
        };
      });
      if (any_lane(top > kTanhNear))
        replace(scores, tile, QuotientTanh());
      else
        replace(scores, tile, SeriesTanh());
    } else {
      replace(scores, tile, ExactTanh());
    }
  }

  /// One score, scaled and capped already.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static float of_pair(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float s) {
    return static_cast<float>(
        UserRow<Code>(params, lengths, sequence, head, query, key).score(ExactTanh(), s, 0));
  }

 private:
  template <class Scores, class QueryTile, class Tanh>
  ATTNFORGE_DEVICE static void replace(const Scores& scores, const QueryTile& tile,
                                       const Tanh& tanh) {
    const float scale = tile.params.fwd.softmax_scale;
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      return [user, tanh, scale](float s, int offset) {
        const auto result = user.score(tanh, ScaledScore{s, scale}, offset);
        if constexpr (kScaled) return static_cast<float>(result);
        return s;
      };
    });
  }
};

}  // namespace attnforge
