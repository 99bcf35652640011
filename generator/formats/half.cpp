// half.cpp - fp16 and bf16 to and from float, by their bits (IEEE 754 binary16; bf16 is the upper
// half of a binary32).
#include "generator/formats/half.h"

#include <bit>

namespace attnforge {

float fp16_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000u) << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa times 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const std::uint32_t wide_exponent = exponent == 0x1f ? 0xff : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

float bf16_to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

std::uint16_t float_to_fp16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  constexpr std::uint32_t kInfinity = 0x7f800000u;
  constexpr std::uint32_t
      kRoundsToInfinity = 0x477ff000u;                    // 65520, half-way between 65504 and 65536
  constexpr std::uint32_t kSmallestNormal = 0x38800000u;  // 2^-14
  std::uint32_t half;
  if (magnitude > kInfinity) {
    half = 0x7e00u;
  } else if (magnitude >= kRoundsToInfinity) {
    half = 0x7c00u;
  } else if (magnitude >= kSmallestNormal) {
    const std::uint32_t rebiased = magnitude - ((127u - 15u) << 23);
    half = (rebiased + 0xfffu + (rebiased >> 13 & 1u)) >> 13;
  } else {
    // The floats from 0.5 on are 2^-24 apart, as are the subnormals of fp16: the addition rounds.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) -
           std::bit_cast<std::uint32_t>(0.5f);
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) {
    return static_cast<std::uint16_t>(bits >> 16 | 0x40u);  // quiet
  }
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace attnforge
