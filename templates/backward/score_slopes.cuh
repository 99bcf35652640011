// score_slopes.cuh - derivatives of scores in backward kernels, for both kinds of Slope: functions
// of the score that Score made, and those that only the score before it tells.
#pragma once

#include "ptx/special.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

template <int kFragments>
ATTNFORGE_DEVICE void copy_scores(const float (&from)[kFragments][4], float (&to)[kFragments][4]) {
  unrolled<kFragments, 4>([&](int j, int c) { to[j][c] = from[j][c]; });
}
template <int kOuter, int kFragments>
ATTNFORGE_DEVICE void copy_scores(const float (&from)[kOuter][kFragments][4],
                                  float (&to)[kOuter][kFragments][4]) {
  unrolled<kOuter>([&](int f) { copy_scores(from[f], to[f]); });
}

/// Before Score changes `scores`: their slopes, if Slope is of the pair; else nothing.
/// view_of(array) is what Score takes, `tile` the QueryTile of the rows.
template <class Slope, class Scores, class ViewOf, class QueryTile>
ATTNFORGE_DEVICE void make_slopes(const Scores& scores, Scores& slopes, const ViewOf& view_of,
                                  const QueryTile& tile) {
  if constexpr (Slope::kOfPair) {
    copy_scores(scores, slopes);
    Slope::apply(view_of(slopes), tile);
  }
}

/// The probability of a score in units of 1 / scale_log2; `lse_log2` is +inf for rows without any.
/// What a text makes of the score of such a row may be infinite.
template <class Slope>
ATTNFORGE_DEVICE float probability(float s, float scale_log2, float lse_log2) {
  const float p = exp2_approx(fmaf(s, scale_log2, -lse_log2));
  if constexpr (Slope::kOfPair) return lse_log2 == -negative_infinity() ? 0.0f : p;
  return p;
}

/// A probability times the slope of its score: of s, or what make_slopes() made. Where nothing is
/// seen the slope of whatever is there may be infinite.
template <class Slope>
ATTNFORGE_DEVICE float times_slope(float p, const Slope& slope, float s, const float& of_pair) {
  if constexpr (Slope::kOne)
    return p;
  else if constexpr (Slope::kOfPair)
    return p == 0.0f ? 0.0f : p * of_pair;
  else
    return p * slope(s);
}

}  // namespace attnforge
