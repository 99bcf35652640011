// largest.cuh - templates/ptx/largest.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Of two halves; of zeros the one without a sign.
template <int kDtype>
u32 larger_half(u32 a, u32 b) {
  constexpr int kInfinity = kDtype == kBf16 ? 0x7f80 : 0x7c00, kNaN = 0x7fff;
  const auto order = [](u32 x) {
    const int magnitude = int(x & 0x7fffu);
    return magnitude > kInfinity ? kNaN : x & 0x8000u ? -magnitude : magnitude;
  };
  if (order(a) == kNaN || order(b) == kNaN) return kNaN;
  return order(a) == order(b) ? a & b : order(a) > order(b) ? a : b;
}

template <int kDtype>
u32 largest2(u32 a, u32 b) {
  return larger_half<kDtype>(a & 0xffffu, b & 0xffffu) | larger_half<kDtype>(a >> 16, b >> 16)
                                                             << 16;
}

}  // namespace attnforge
