// product.h - the inputs of a plain attention's products.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// `x` in TF32, to nearest, where the problem allows that.
inline float product_input(const Problem& problem, float x) {
  if (!problem.tf32 || !std::isfinite(x)) return x;
  constexpr std::uint32_t kDropped = 13;  // bits of the mantissa
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x) + (1u << (kDropped - 1));
  return std::bit_cast<float>(bits >> kDropped << kDropped);
}

}  // namespace attnforge
