// special.cuh - what these tests need of templates/ptx/special.cuh, on the host.
#pragma once

#include <cmath>

#include "base.cuh"

namespace attnforge {

inline float negative_infinity() { return -__int_as_float(0x7f800000); }
inline float exp2_approx(float x) { return std::exp2(x); }
inline float log2_approx(float x) { return std::log2(x); }
inline float reciprocal_approx(float x) { return 1 / x; }
inline u32 low_bits(int count) { return count <= 0 ? 0 : count >= 32 ? ~0u : (1u << count) - 1; }

}  // namespace attnforge
