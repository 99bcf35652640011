// half_test.cpp - every 16-bit pattern, and roundings against the two neighbours of a number.
#include "generator/formats/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>

namespace attnforge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Format {
  float (*to_float)(std::uint16_t);
  std::uint16_t (*from_float)(float);
  std::uint16_t infinity;
};
constexpr Format kFormats[] = {
    {fp16_to_float, float_to_fp16, 0x7c00},
    {bf16_to_float, float_to_bf16, 0x7f80},
};

TEST(Half, EveryPatternSurvivesTheWayToFloatAndBack) {
  for (const Format& format : kFormats) {
    for (std::uint32_t bits = 0; bits <= 0xffff; ++bits) {
      const auto half = static_cast<std::uint16_t>(bits);
      const float x = format.to_float(half);
      if ((half & 0x7fff) > format.infinity) {
        EXPECT_TRUE(std::isnan(x) && std::isnan(format.to_float(format.from_float(x)))) << bits;
      } else {
        EXPECT_EQ(format.from_float(x), half);
      }
    }
  }
}

TEST(Half, KnownValues) {
  EXPECT_EQ(fp16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(fp16_to_float(0xc000), -2.0f);
  EXPECT_EQ(fp16_to_float(0x7bff), 65504.0f);
  EXPECT_EQ(fp16_to_float(0x0001), 0x1p-24f);
  EXPECT_EQ(fp16_to_float(0x0400), 0x1p-14f);
  EXPECT_EQ(fp16_to_float(0x7c00), kInfinity);
  EXPECT_EQ(bf16_to_float(0x3f80), 1.0f);
  EXPECT_EQ(bf16_to_float(0xc049), -3.140625f);
  EXPECT_EQ(float_to_fp16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_bf16(-0.0f), 0x8000);
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  // Ties go to the even one.
  EXPECT_EQ(float_to_fp16(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(float_to_fp16(1.0f + 3 * 0x1p-11f), 0x3c02);
  EXPECT_EQ(float_to_fp16(0x1p-25f), 0x0000);
  EXPECT_EQ(float_to_fp16(3 * 0x1p-25f), 0x0002);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3f82);
}

TEST(Half, RoundsToTheNearestOfTheNeighboursAndTiesToEven) {
  std::mt19937 random(1);
  for (const Format& format : kFormats) {
    for (int i = 0; i < 200000; ++i) {
      const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x7fffffffu);
      const std::uint16_t half = format.from_float(x);
      if (std::isnan(x)) continue;
      // An infinity counts as the number that would follow the largest finite one.
      const auto value = [&](std::uint16_t bits) {
        if (bits < format.infinity) return static_cast<double>(format.to_float(bits));
        return 2.0 * format.to_float(static_cast<std::uint16_t>(format.infinity - 1)) -
               format.to_float(static_cast<std::uint16_t>(format.infinity - 2));
      };
      if (half == format.infinity && x > value(half)) continue;
      const double error = std::abs(value(half) - x);
      for (const int step : {-1, 1}) {
        if ((half == 0 && step < 0) || (half == format.infinity && step > 0)) continue;
        const double other = std::abs(value(static_cast<std::uint16_t>(half + step)) - x);
        EXPECT_TRUE(error < other || (error == other && half % 2 == 0))
            << format.infinity << " " << x;
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
