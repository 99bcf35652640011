// reciprocal.cuh - templates/ptx/reciprocal.cuh on the host.
#pragma once

#include <cmath>
#include <limits>

namespace attnforge {

/// Which of the three floats around it is given: a GPU's may be each.
inline thread_local int reciprocal_error = 0;  // -1, 0 or 1

inline float reciprocal_approx(float x) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float exact = 1.0f / x;
  return reciprocal_error == 0 ? exact : std::nextafter(exact, reciprocal_error * kInfinity);
}

}  // namespace attnforge
