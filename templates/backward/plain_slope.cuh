// plain_slope.cuh - Slope, the derivative of Score, of attention without any function of scores.
#pragma once

#include "base_params.h"

namespace attnforge {

struct PlainSlope {
  /// Whether it is 1 for every score: nothing is multiplied then.
  static constexpr bool kOne = true;
  /// Whether it is not a function of the score, but apply() makes it of all scores, as Score does.
  static constexpr bool kOfPair = false;

  ATTNFORGE_DEVICE explicit PlainSlope(const FwdParams&) {}
  /// The slope at the score that became s, by Score and then by Mask.
  ATTNFORGE_DEVICE float operator()(float) const { return 1.0f; }
};

}  // namespace attnforge
