// slope.cuh - Slope of a soft cap.
#pragma once

#include "base_params.h"

namespace attnforge {

/// d tanh(x) / dx = 1 - tanh(x)^2, from the capped score: softcap * tanh(x) in units of 1 /
/// softmax_scale (parts/softcap/score.cuh).
struct SoftcapSlope {
  static constexpr bool kOne = false;
  static constexpr bool kOfPair = false;

  float to_tanh;  // softmax_scale / softcap

  ATTNFORGE_DEVICE explicit SoftcapSlope(const FwdParams& p) : to_tanh(p.softcap_to_x) {}
  /// 0 for -inf, which the mask made.
  ATTNFORGE_DEVICE float operator()(float s) const {
    const float tanh_x = s * to_tanh;
    return 1.0f - fminf(tanh_x * tanh_x, 1.0f);
  }
};

}  // namespace attnforge
