// of_shape.cuh - the walk, the mask and the score of a config's shape, for kernels that look at one
// score at a time: the ladder's, which take no pieces from their entry.
#pragma once

#include "base.cuh"
#include "base_params.h"
#include "parts/softcap/score.cuh"
#include "pieces/range_walk.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

/// Which tiles of keys a query tile sees.
template <auto C>
using WalkOf = RangeWalk<C.left_bound != 0>;

/// -inf where the row does not see the key.
template <auto C>
ATTNFORGE_DEVICE float masked_score(float s, int key, const VisibleKeys& visible) {
  return masked<C.left_bound != 0>(s, key, visible);
}

/// What becomes of a product of a query and a key before the mask, in units of 1 / softmax_scale.
template <auto C, bool kChanged = C.softcap != 0>
struct ScoreOf : SoftcapScore {
  using SoftcapScore::SoftcapScore;
  /// Changes all scores of an array, by all lanes of a warp, where probabilities are rounded to 16
  /// bits later.
  template <class T>
  ATTNFORGE_DEVICE void apply_coarse(T& scores) const {
    this->template cap<true>(scores);
  }
};
template <auto C>
struct ScoreOf<C, false> {
  ATTNFORGE_DEVICE explicit ScoreOf(const FwdParams&) {}
  ATTNFORGE_DEVICE float operator()(float s) const { return s; }
  template <class T>
  ATTNFORGE_DEVICE void apply_coarse(T&) const {}
};

}  // namespace attnforge
