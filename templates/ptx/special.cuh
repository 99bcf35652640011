// special.cuh - approximate functions of the special function unit (PTX ISA, "ex2", "lg2", "rcp").
#pragma once

#include "base.cuh"

namespace attnforge {

ATTNFORGE_DEVICE float negative_infinity() { return -__int_as_float(0x7f800000); }

/// The lowest `count` bits; all where there are no more (PTX ISA, "bmsk").
ATTNFORGE_DEVICE u32 low_bits(int count) {
  u32 bits;
  asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(bits) : "r"(count));
  return bits;
}

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

}  // namespace attnforge
