// codes.cpp - numbers of 8 and 4 bits to and from float (OCP 8-bit floating point, revision 1.0).
#include "generator/formats/codes.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attnforge/element_format.h"
#include "attnforge/error.h"
#include "generator/formats/half.h"

namespace attnforge {
namespace {

/// A finite or infinite float to the nearest number with kMantissa bits after the point and
/// exponents from kLeast on, ties to even: as long as it is not too large.
template <int kMantissa, int kLeast>
float rounded(float x) {
  const int exponent = x == 0.0f ? kLeast : std::max(std::ilogb(x), kLeast);
  return std::ldexp(std::nearbyint(std::ldexp(x, kMantissa - exponent)), exponent - kMantissa);
}

template <int kLeast, int kLargest>
int rounded_integer(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(x), float{kLeast}, float{kLargest}));
}

}  // namespace

float e4m3_to_float(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float x = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                          : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if (exponent == 15 && mantissa == 7) x = std::numeric_limits<float>::quiet_NaN();
  return (bits & 0x80) != 0 ? -x : x;
}

float e5m2_to_float(std::uint8_t bits) {
  return fp16_to_float(static_cast<std::uint16_t>(bits << 8));
}

std::uint8_t float_to_e4m3(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  const float magnitude = std::min(rounded<3, -6>(std::min(std::abs(x), 1000.0f)), 448.0f);
  if (magnitude < 0x1p-6f) return sign | static_cast<std::uint8_t>(std::ldexp(magnitude, 9));
  const int exponent = std::ilogb(magnitude);
  const auto mantissa = static_cast<int>(std::ldexp(magnitude, 3 - exponent)) - 8;
  return static_cast<std::uint8_t>(sign | (exponent + 7) << 3 | mantissa);
}

std::uint8_t float_to_e5m2(float x) {
  const std::uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::isnan(x)) return sign | 0x7f;
  // Its numbers are those of fp16 whose last 8 bits are 0: no second rounding.
  float magnitude = std::abs(x);
  if (!std::isinf(x))
    magnitude = std::min(rounded<2, -14>(std::min(magnitude, 65536.0f)), 57344.0f);
  return static_cast<std::uint8_t>(sign | float_to_fp16(magnitude) >> 8);
}

std::int8_t float_to_int8(float x) {
  return static_cast<std::int8_t>(rounded_integer<-128, 127>(x));
}
int float_to_int4(float x) { return rounded_integer<-8, 7>(x); }

void load_int4(const void* array, std::int64_t first, std::int64_t count, float* to) {
  const auto* const bytes = static_cast<const std::uint8_t*>(array);
  for (std::int64_t i = first; i < first + count; ++i) {
    const int code = bytes[i / 2] >> (i % 2 * 4) & 15;
    *to++ = static_cast<float>((code ^ 8) - 8);
  }
}

namespace {

/// Blocks of `bytes`: fp16, and then what holds kBlockElements numbers.
struct Blocks {
  int bytes;
  std::uint8_t* of(const void* array, std::int64_t element) const {
    return static_cast<std::uint8_t*>(const_cast<void*>(array)) + element / kBlockElements * bytes;
  }
  static float scale(const std::uint8_t* block) {
    return fp16_to_float(static_cast<std::uint16_t>(block[0] | block[1] << 8));
  }
};
constexpr Blocks kOf8{34}, kOf4{18};

int number_of_4(const std::uint8_t* block, int i) {
  return (block[2 + i % 16] >> (i / 16 * 4) & 15) - 8;
}

/// Calls put(block, i, number): numbers from `least` to `most`, of which the largest magnitude
/// becomes one, the least where that is farther from 0. A NaN is the largest of all.
template <typename Put>
void store_blocks(Blocks blocks, const float* from, std::int64_t count, void* array,
                  std::int64_t first, float least, float most, const Put& put) {
  ATTNFORGE_ASSERT(first % kBlockElements == 0 && count % kBlockElements == 0,
                   "whole blocks are stored");
  for (std::int64_t i = 0; i < count; i += kBlockElements, from += kBlockElements) {
    std::uint8_t* const block = blocks.of(array, first + i);
    float largest = 0;
    for (int e = 0; e < kBlockElements; ++e)
      if (!std::isnan(largest) && !(std::abs(from[e]) <= std::abs(largest))) largest = from[e];
    const std::uint16_t bits = float_to_fp16(-least == most ? std::abs(largest) / most
                                                            : largest / least);
    block[0] = static_cast<std::uint8_t>(bits), block[1] = static_cast<std::uint8_t>(bits >> 8);
    const float scale = fp16_to_float(bits);
    for (int e = 0; e < kBlockElements; ++e) {
      const float x = scale == 0.0f ? 0.0f : std::nearbyint(from[e] / scale);
      put(block, e, std::isnan(x) ? 0 : static_cast<int>(std::clamp(x, least, most)));
    }
  }
}

}  // namespace

void load_q8_0(const void* array, std::int64_t first, std::int64_t count, float* to) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::uint8_t* const block = kOf8.of(array, i);
    *to++ = static_cast<float>(static_cast<std::int8_t>(block[2 + i % kBlockElements])) *
            Blocks::scale(block);
  }
}

void load_q4_0(const void* array, std::int64_t first, std::int64_t count, float* to) {
  for (std::int64_t i = first; i < first + count; ++i) {
    const std::uint8_t* const block = kOf4.of(array, i);
    *to++ = static_cast<float>(number_of_4(block, static_cast<int>(i % kBlockElements))) *
            Blocks::scale(block);
  }
}

void store_q8_0(const float* from, std::int64_t count, void* array, std::int64_t first) {
  store_blocks(kOf8, from, count, array, first, -127, 127,
               [](std::uint8_t* block, int i, int number) {
                 block[2 + i] = static_cast<std::uint8_t>(number);
               });
}

void store_q4_0(const float* from, std::int64_t count, void* array, std::int64_t first) {
  store_blocks(kOf4, from, count, array, first, -8, 7, [](std::uint8_t* block, int i, int number) {
    std::uint8_t& byte = block[2 + i % 16];
    byte = static_cast<std::uint8_t>(i < 16 ? number + 8 : byte | (number + 8) << 4);
  });
}

void store_int4(const float* from, std::int64_t count, void* array, std::int64_t first) {
  auto* const bytes = static_cast<std::uint8_t*>(array);
  for (std::int64_t i = first; i < first + count; ++i) {
    const auto shift = static_cast<unsigned>(i % 2 * 4);
    const auto code = static_cast<unsigned>(float_to_int4(*from++)) & 15U;
    bytes[i / 2] = static_cast<std::uint8_t>((bytes[i / 2] & ~(15U << shift)) | code << shift);
  }
}

}  // namespace attnforge
