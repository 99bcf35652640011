// reciprocal.cuh - 1 / x of fp32 (PTX ISA, "rcp").
#pragma once

#include "base.cuh"

namespace attnforge {

/// The last bit may be another one; 0 and infinity where x or 1 / x is no normal number.
ATTNFORGE_DEVICE float reciprocal_approx(float x) {
  float reciprocal;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(x));
  return reciprocal;
}

}  // namespace attnforge
