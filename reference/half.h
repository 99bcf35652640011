// half.h - 16-bit floats on the host: exact to float, from float rounded to nearest even.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// Subnormals, infinities and NaN included; a NaN stays one.
float fp16_to_float(std::uint16_t bits);
float bf16_to_float(std::uint16_t bits);
/// To nearest, ties to even; beyond the largest finite value to infinity.
std::uint16_t float_to_fp16(float x);
std::uint16_t float_to_bf16(float x);

/// `x` as the dtype would hold it.
float round_to(DType dtype, float x);

/// Element `index` of an array of `dtype` in host memory.
float load_element(DType dtype, const void* array, std::int64_t index);
void store_element(DType dtype, void* array, std::int64_t index, float x);

/// `count` elements from `first` on.
void load_elements(DType dtype, const void* array, std::int64_t first, int count, double* to);

/// Half the distance from 1 to the next number, relative to 1: the largest relative error of a
/// rounding.
double unit_roundoff(DType dtype);

}  // namespace attnforge
