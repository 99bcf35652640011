// score.h - a plain attention's score under a soft cap.
#pragma once

#include <cmath>

#include "attnforge/problem.h"
#include "reference/half.h"

namespace attnforge {

/// A score and its slope, rounded to a dtype after each operation.
struct PlainScore {
  float value, slope = 1;
};
inline PlainScore plain_score(const Problem& problem, DType dtype, float scaled) {
  if (problem.softcap == 0.0f) return {scaled};
  const float tanh = round_to(dtype, std::tanh(round_to(dtype, scaled / problem.softcap)));
  return {round_to(dtype, problem.softcap * tanh), round_to(dtype, 1 - tanh * tanh)};
}

}  // namespace attnforge
