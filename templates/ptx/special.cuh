// special.cuh - the approximate functions of the special function unit (PTX ISA, "ex2", "lg2",
// "rcp").
#pragma once

#include "base.cuh"

namespace attnforge {

ATTNFORGE_DEVICE float negative_infinity() { return -__int_as_float(0x7f800000); }

/// 2^x to 2 ulp; 0 for -inf and for results below 2^-126.
ATTNFORGE_DEVICE float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// log2(x) to 2^-22.
ATTNFORGE_DEVICE float log2_approx(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// 1 / x to 1 ulp.
ATTNFORGE_DEVICE float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

/// tanh(x) to about 1e-6: the tanh instruction alone has 2^-11, too coarse for a cap of 30 or more.
ATTNFORGE_DEVICE float tanh_by_exp2(float x) {
  constexpr float kTwoLog2e = 2.885390081777927f;
  return 1.0f - 2.0f * reciprocal_approx(exp2_approx(x * kTwoLog2e) + 1.0f);
}

}  // namespace attnforge
