// tanh.cuh - the hyperbolic tangent of scores, as exact as a softmax asks: polynomials by range.
#pragma once

#include "ptx/special.cuh"

namespace attnforge {

/// x, but no larger than `bound` and no smaller than -bound; NaN stays NaN (PTX ISA, "min").
ATTNFORGE_DEVICE float clamp_magnitude(float x, float bound) {
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(x), "f"(bound));
  asm("max.NaN.f32 %0, %0, %1;" : "+f"(y) : "f"(-bound));
  return y;
}

/// tanh(x) / x = 1 + x^2 tanh_series(x^2) for |x| <= kTanhNear: the minimax fit of the relative
/// error (8e-8; 2e-7 with the roundings of fp32).
inline constexpr float kTanhNear = 0.6f;

ATTNFORGE_DEVICE float tanh_series(float x2) {
  float p = fmaf(x2, 1.5612610532796852e-2f, -5.2211792387783604e-2f);
  p = fmaf(p, x2, 0.1331311638029271f);
  return fmaf(p, x2, -0.3333259749208296f);
}

/// The series for |x| <= kTanhNearest, with two terms: to 5e-7.
inline constexpr float kTanhNearest = 0.25f, kTanhFirst = -0.3332460738487286f,
                       kTanhSecond = 0.1287711429048711f;

/// From here on tanh(x) rounds to 1, but for an ulp.
inline constexpr float kTanhEnd = 8.6f;

/// tanh(x) / x for |x| <= kTanhEnd, given x^2: a quotient of polynomials, the minimax fit of the
/// relative error (1.4e-8; 4e-7 with the roundings of fp32). The tanh instruction has 5e-4, and
/// 1 - 2 / (exp(2x) + 1) an absolute error, which a large cap multiplies.
ATTNFORGE_DEVICE float tanh_over_x(float x2) {
  float p = fmaf(x2, 1.4082522703515e-8f, 2.1122417820152e-5f);
  p = fmaf(p, x2, 3.5264035686851e-3f);
  p = fmaf(p, x2, 0.13406877219677f);
  p = fmaf(p, x2, 1.0f);
  float q = fmaf(x2, 8.0706576000011e-7f, 3.3362736576236e-4f);
  q = fmaf(q, x2, 2.5993907824159e-2f);
  q = fmaf(q, x2, 0.46740198135376f);
  q = fmaf(q, x2, 1.0f);
  return p * reciprocal_approx(q);
}

}  // namespace attnforge
