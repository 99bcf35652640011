// score.cuh - Score by the user's text.
#pragma once

#include "parts/user_code/code.cuh"
#include "parts/user_code/rows.cuh"
#include "pieces/plain_score.cuh"
#include "ptx/shuffle.cuh"
#include "tile/tanh.cuh"

namespace attnforge {

/// For types of expressions that are not evaluated.
template <class T>
ATTNFORGE_DEVICE T a_value();

/// Elements of the text's aligned array, for scores that are read by rows; else nothing.
template <class Code, class Scores>
struct TextAhead : NothingAhead {};
template <class Code, class Scores>
requires requires { sizeof(RowElements<typename Code::RowElement, Scores>); }
struct TextAhead<Code, Scores> : RowElements<typename Code::RowElement, Scores> {
  using Rows = RowElements<typename Code::RowElement, Scores>;
  static constexpr bool kReads = true;

  template <class QueryTile>
  ATTNFORGE_DEVICE void begin(const Scores& scores, const QueryTile& tile) {
    Rows::begin(scores, tile.lengths.kv(),
                [&](int row, int key) { return UserRow<Code>(tile, row, key).place_in_row(); });
  }
  template <class Score, class QueryTile>
  ATTNFORGE_DEVICE void apply(const Scores& scores, const QueryTile& tile) {
    Rows::end();
    Score::change(scores, tile, static_cast<const Rows&>(*this));
  }
};

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

  template <class Scores>
  using Ahead = TextAhead<Code, Scores>;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    if constexpr (Ahead<Scores>::kReads) {
      Ahead<Scores> ahead;
      ahead.begin(scores, tile);
      ahead.template apply<UserScore>(scores, tile);
    } else {
      change(scores, tile, ElementByElement());
    }
  }

  /// One score, scaled and capped already.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static float of_pair(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query, int key, float s) {
    return static_cast<float>(
        UserRow<Code>(params, lengths, sequence, head, query, key).score(ExactTanh(), s, 0));
  }

  /// apply(), with elements as RowElements has them.
  template <class Scores, class QueryTile, class Elements>
  ATTNFORGE_DEVICE static void change(const Scores& scores, const QueryTile& tile,
                                      const Elements& elements) {
    Before::apply(scores, tile);
    if constexpr (Code::kTanh && Scores::kCoarse) {
      float top = 0.0f;
      const float scale = tile.params.fwd.softmax_scale;
      elements.for_each(scores, [&](int row, int lane_key) {
        const UserRow<Code> user(tile, row, lane_key);
        return [user, scale, &top](float s, int offset, const typename Elements::Reads& reads) {
          user.score(NotingTanh{top}, ScaledScore{s, scale}, offset, reads);
          return s;
        };
      });
      if (any_lane(top > kTanhNear))
        replace(scores, tile, elements, QuotientTanh());
      else
        replace(scores, tile, elements, SeriesTanh());
    } else {
      replace(scores, tile, elements, ExactTanh());
    }
  }

 private:
  /// In the place of Ahead where arrays are read element by element.
  struct ElementByElement {
    using Reads = FromMemory;
    template <class Scores, class OfRow>
    ATTNFORGE_DEVICE void for_each(const Scores& scores, const OfRow& of_row) const {
      scores.for_each([&](int row, int lane_key) {
        return
            [f = of_row(row, lane_key)](float s, int offset) { return f(s, offset, FromMemory()); };
      });
    }
  };

  template <class Scores, class QueryTile, class Elements, class Tanh>
  ATTNFORGE_DEVICE static void replace(const Scores& scores, const QueryTile& tile,
                                       const Elements& elements, const Tanh& tanh) {
    const float scale = tile.params.fwd.softmax_scale;
    elements.for_each(scores, [&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      return [user, tanh, scale](float s, int offset, const typename Elements::Reads& reads) {
        const auto result = user.score(tanh, ScaledScore{s, scale}, offset, reads);
        if constexpr (kScaled) return static_cast<float>(result);
        return s;
      };
    });
  }
};

}  // namespace attnforge
