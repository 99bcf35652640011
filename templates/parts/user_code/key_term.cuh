// key_term.cuh - Score by a text that is "s" and what is added to it, which no query decides: the
// text is asked once for rows that have the same key.
#pragma once

#include "backward/transposed_scores.cuh"
#include "parts/user_code/score.cuh"
#include "tile/fragment_scores.cuh"

namespace attnforge {

// s * scale + of_key(offset) of all scores of a lane, for its key lane_key + offset.

/// Lanes that have the same keys of other rows ask for an eighth of them each.
template <int kRowFragments, int kFragments, class OfKey>
ATTNFORGE_DEVICE void add_of_keys(float (&s)[kRowFragments][kFragments][4], float scale,
                                  const OfKey& of_key) {
  constexpr int kOwn = ceil_div(2 * kFragments, 8);
  const int lane = thread_index() % 32, first = lane / 8 * 8 + lane / 4 % 2;
  float own[kOwn];
  unrolled<kOwn>([&](int i) { own[i] = of_key(32 * i + first); });
  unrolled<kFragments, 2>([&](int j, int c) {
    const float x = __shfl_sync(~0u, own[j / 4], (2 * j + c) % 8 * 4 + lane % 4);
    unrolled<kRowFragments, 2>(
        [&](int f, int r) { s[f][j][2 * r + c] = fmaf(s[f][j][2 * r + c], scale, x); });
  });
}
template <int kFragments, class OfKey>
ATTNFORGE_DEVICE void add_of_keys(float (&s)[kFragments][4], float scale, const OfKey& of_key) {
  add_of_keys(reinterpret_cast<float(&)[1][kFragments][4]>(s), scale, of_key);
}
/// Of transposed scores a lane has two keys, with many queries.
template <int kFragments, class OfKey>
ATTNFORGE_DEVICE void add_of_two_keys(float (&s)[kFragments][4], float scale, const OfKey& of_key) {
  unrolled<2>([&](int r) {
    const float x = of_key(8 * r);
    unrolled<kFragments, 2>(
        [&](int j, int c) { s[j][2 * r + c] = fmaf(s[j][2 * r + c], scale, x); });
  });
}
template <int kKeyFragments, int kFragments, class OfKey>
ATTNFORGE_DEVICE void add_of_two_keys(float (&s)[kKeyFragments][kFragments][4], float scale,
                                      const OfKey& of_key) {
  unrolled<kKeyFragments>([&](int i) {
    add_of_two_keys(s[i], scale, [&](int offset) { return of_key(16 * i + offset); });
  });
}

/// Other scores are asked for one by one.
template <class Code, class Before = PlainScore>
struct KeyTermScore : UserScore<Code, Before> {
  using UserScore<Code, Before>::apply;
  static_assert(UserScore<Code, Before>::kScaled, "the text adds something");

  template <class Array, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const FragmentScores<Array>& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    const UserRow<Code> user(tile, scores.row,
                             scores.first_key + MmaFragment::column(thread_index() % 32));
    add_of_keys(scores.all, tile.params.fwd.softmax_scale,
                [&](int offset) { return term(user, offset); });
  }
  template <class Array, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const TransposedScores<Array>& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    const UserRow<Code> user(tile, scores.first_row, scores.lane_key);
    add_of_two_keys(scores.all, tile.params.fwd.softmax_scale,
                    [&](int offset) { return term(user, offset); });
  }

 private:
  ATTNFORGE_DEVICE static float term(const UserRow<Code>& user, int offset) {
    return static_cast<float>(user.score(QuotientTanh(), 0.0f, offset));
  }
};

}  // namespace attnforge
