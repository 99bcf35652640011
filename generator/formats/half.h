// half.h - 16-bit floats on the host: exact to float, from float rounded to nearest even.
#pragma once

#include <cstdint>

namespace attnforge {

/// Subnormals, infinities and NaN included; a NaN stays one.
float fp16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
/// To nearest, ties to even; beyond the largest finite value to infinity.
std::uint16_t float_to_fp16(float x);
std::uint16_t float_to_bf16(float x);

}  // namespace attnforge
