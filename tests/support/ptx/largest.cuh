// largest.cuh - templates/ptx/largest.cuh on the host, of numbers without a sign.
#pragma once

#include <algorithm>

#include "base.cuh"

namespace attnforge {

/// As bits they are in order, with NaN at the end.
template <int kDtype>
u32 largest2(u32 a, u32 b) {
  const u32 lower = std::max(a & 0xffffu, b & 0xffffu);
  return lower | std::max(a >> 16, b >> 16) << 16;
}

}  // namespace attnforge
