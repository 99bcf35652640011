// float_parts_test.cpp - fp32 numbers that pass through shared memory in 24 bits, on the host.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/bwd_wgmma_sm90a/float_parts.cuh"
// clang-format on

namespace attnforge {
namespace {

void expect_joined(const float (&x)[4]) {
  const u32 words[2] = {upper_halves(x[0], x[1]), upper_halves(x[2], x[3])};
  const u32 below = bytes_below(x);
  for (int i = 0; i < 4; ++i) {
    const float got = joined_float(words[i / 2], below, i);
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(got));
    } else if (std::isinf(x[i])) {
      EXPECT_EQ(got, x[i]);
    } else {
      EXPECT_LE(std::abs(got - x[i]), std::abs(x[i]) * 0x1p-15f) << x[i];
    }
  }
}

TEST(FloatParts, AreTheNumberAgainToSixteenBits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  expect_joined({0.0f, 1.0f, -1.0f, 0x1p-17f});
  expect_joined({kInf, -kInf, std::nanf(""), -std::nanf("")});
  expect_joined({__uint_as_float(0x7fffffffu), 0.0f, __uint_as_float(0xffc00000u), 3e38f});
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-100, 100);
  for (int i = 0; i < 1000; ++i) {
    float x[4];
    for (float& each : x) each = std::exp2(exponent(random)) * (random() % 2 == 0 ? 1.0f : -1.0f);
    expect_joined(x);
  }
}

}  // namespace
}  // namespace attnforge
