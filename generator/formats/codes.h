// codes.h - numbers of 8 and 4 bits on the host: floats of 8 bits, and signed integers.
#pragma once

#include <cstdint>

namespace attnforge {

/// Exact. e4m3 has no infinity, and two NaN; e5m2 is the upper half of a binary16.
float e4m3_to_float(std::uint8_t bits);
float e5m2_to_float(std::uint8_t bits);
/// To nearest, ties to even. Beyond the largest finite value it is that value; of e5m2 an infinity
/// stays one, and a NaN of both.
std::uint8_t float_to_e4m3(float x);
std::uint8_t float_to_e5m2(float x);

/// To nearest, ties to even, between the least and the largest; a NaN becomes 0.
std::int8_t float_to_int8(float x);
int float_to_int4(float x);

/// Arrays of int4: two's complement, element 2 i in the low half of byte i, 2 i + 1 in the high
/// one.
void load_int4(const void* array, std::int64_t first, std::int64_t count, float* to);
void store_int4(const float* from, std::int64_t count, void* array, std::int64_t first);

/// Arrays of ggml's blocks (DType). Exact. Whole blocks are stored: the scale is the largest
/// magnitude divided by 127, or the number that has it by -8, rounded to fp16, and numbers are
/// quotients by that.
void load_q8_0(const void* array, std::int64_t first, std::int64_t count, float* to);
void load_q4_0(const void* array, std::int64_t first, std::int64_t count, float* to);
void store_q8_0(const float* from, std::int64_t count, void* array, std::int64_t first);
void store_q4_0(const float* from, std::int64_t count, void* array, std::int64_t first);

}  // namespace attnforge
