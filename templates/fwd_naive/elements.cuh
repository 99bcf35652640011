// elements.cuh - elements of any dtype and alignment to and from fp32.
#pragma once

#include "base.cuh"
#include "ptx/convert.cuh"

namespace attnforge {

/// The fp16 or bf16 with these bits. Exact.
template <int kDtype>
ATTNFORGE_DEVICE float to_float(u16 bits) {
  if constexpr (kDtype == kBf16) {
    return __uint_as_float(u32(bits) << 16);
  } else {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
}

/// 8 elements at `from`, which is aligned to kAlignment bytes, as fp32.
template <int kDtype, int kAlignment>
ATTNFORGE_DEVICE void load_8(const char* from, float (&to)[8]) {
  constexpr int kWords = 2 * element_bytes(kDtype);
  u32 words[kWords];
  if constexpr (kAlignment >= 16) {
#pragma unroll
    for (int w = 0; w < kWords; w += 4) {
      const uint4 four = *reinterpret_cast<const uint4*>(from + 4 * w);
      words[w] = four.x, words[w + 1] = four.y, words[w + 2] = four.z, words[w + 3] = four.w;
    }
  } else if constexpr (kAlignment >= 8) {
#pragma unroll
    for (int w = 0; w < kWords; w += 2) {
      const uint2 two = *reinterpret_cast<const uint2*>(from + 4 * w);
      words[w] = two.x, words[w + 1] = two.y;
    }
  } else {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (kAlignment >= 4) {
        words[w] = *reinterpret_cast<const u32*>(from + 4 * w);
      } else {
        const u16* halves = reinterpret_cast<const u16*>(from + 4 * w);
        words[w] = halves[0] | u32(halves[1]) << 16;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (kDtype == kFp32) {
      to[i] = __uint_as_float(words[i]);
    } else {
      to[i] = to_float<kDtype>(u16(i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16));
    }
  }
}

template <int kDtype>
ATTNFORGE_DEVICE float load_1(const char* from) {
  if constexpr (kDtype == kFp32) {
    return *reinterpret_cast<const float*>(from);
  } else {
    return to_float<kDtype>(*reinterpret_cast<const u16*>(from));
  }
}

template <int kDtype>
ATTNFORGE_DEVICE void store_1(char* to, float x) {
  if constexpr (kDtype == kFp32) {
    *reinterpret_cast<float*>(to) = x;
  } else {
    *reinterpret_cast<u16*>(to) = u16(pack2<kDtype>(x, 0.0f));
  }
}

}  // namespace attnforge
