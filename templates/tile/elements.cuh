// elements.cuh - elements of any dtype and alignment to and from fp32, and as words.
#pragma once

#include "base_params.h"
#include "ptx/convert.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// `from` is aligned to kAlignment bytes.
template <int kAlignment, int kWords>
ATTNFORGE_DEVICE void load_words(const char* from, u32 (&to)[kWords]) {
  if constexpr (kAlignment >= 16 && kWords % 4 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 4) {
      const uint4 x = *reinterpret_cast<const uint4*>(from + 4 * w);
      to[w] = x.x, to[w + 1] = x.y, to[w + 2] = x.z, to[w + 3] = x.w;
    }
  } else if constexpr (kAlignment >= 8 && kWords % 2 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 2) {
      const uint2 x = *reinterpret_cast<const uint2*>(from + 4 * w);
      to[w] = x.x, to[w + 1] = x.y;
    }
  } else if constexpr (kAlignment >= 4) {
    unrolled<kWords>([&](int w) { to[w] = *reinterpret_cast<const u32*>(from + 4 * w); });
  } else {
    const u16* halves = reinterpret_cast<const u16*>(from);
    unrolled<kWords>([&](int w) { to[w] = halves[2 * w] | u32(halves[2 * w + 1]) << 16; });
  }
}

/// `to` is aligned to kAlignment bytes.
template <int kAlignment, int kWords>
ATTNFORGE_DEVICE void store_words(char* to, const u32 (&from)[kWords]) {
  if constexpr (kAlignment >= 16 && kWords % 4 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 4)
      *reinterpret_cast<uint4*>(to + 4 * w) = make_uint4(from[w], from[w + 1], from[w + 2],
                                                         from[w + 3]);
  } else if constexpr (kAlignment >= 8 && kWords % 2 == 0) {
#pragma unroll
    for (int w = 0; w < kWords; w += 2)
      *reinterpret_cast<uint2*>(to + 4 * w) = make_uint2(from[w], from[w + 1]);
  } else if constexpr (kAlignment >= 4) {
    unrolled<kWords>([&](int w) { *reinterpret_cast<u32*>(to + 4 * w) = from[w]; });
  } else {
    u16* halves = reinterpret_cast<u16*>(to);
    unrolled<kWords>(
        [&](int w) { halves[2 * w] = u16(from[w]), halves[2 * w + 1] = u16(from[w] >> 16); });
  }
}

/// The fp16 or bf16 with these bits. Exact.
template <int kDtype>
ATTNFORGE_DEVICE float to_float(u16 bits) {
  static_assert(kDtype == kFp16 || kDtype == kBf16, "to_float takes fp16 or bf16");
  if constexpr (kDtype == kBf16) {
    return __uint_as_float(u32(bits) << 16);
  } else {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
}

/// The elements in `words`.
template <int kDtype, int kWords, int kCount>
ATTNFORGE_DEVICE void to_floats(const u32 (&words)[kWords], float (&to)[kCount]) {
  static_assert(kWords * 4 == kCount * element_bytes(kDtype), "all of them");
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if constexpr (kDtype == kFp32) {
      to[i] = __uint_as_float(words[i]);
    } else {
      to[i] = to_float<kDtype>(u16(i % 2 == 0 ? words[i / 2] : words[i / 2] >> 16));
    }
  }
}

/// kCount elements (an even number) at `from`, which is aligned to kAlignment bytes, as fp32.
template <int kDtype, int kAlignment, int kCount>
ATTNFORGE_DEVICE void load_floats(const char* from, float (&to)[kCount]) {
  static_assert(kCount % 2 == 0, "a word has two 16-bit elements");
  u32 words[kCount * element_bytes(kDtype) / 4];
  load_words<kAlignment>(from, words);
  to_floats<kDtype>(words, to);
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

/// Two elements to `to`, which is aligned to 4 bytes.
template <int kDtype>
ATTNFORGE_DEVICE void store_2(char* to, float a, float b) {
  if constexpr (kDtype == kFp32) {
    reinterpret_cast<float*>(to)[0] = a;
    reinterpret_cast<float*>(to)[1] = b;
  } else {
    *reinterpret_cast<u32*>(to) = pack2<kDtype>(a, b);
  }
}

/// Four elements to `to`, which is aligned to kAlignment bytes.
template <int kDtype, int kAlignment>
ATTNFORGE_DEVICE void store_4(char* to, float a, float b, float c, float d) {
  if constexpr (kDtype == kFp32) {
    if constexpr (kAlignment >= 16) {
      *reinterpret_cast<float4*>(to) = make_float4(a, b, c, d);
    } else {
      float* floats = reinterpret_cast<float*>(to);
      floats[0] = a, floats[1] = b, floats[2] = c, floats[3] = d;
    }
  } else {
    const u32 low = pack2<kDtype>(a, b), high = pack2<kDtype>(c, d);
    if constexpr (kAlignment >= 8) {
      *reinterpret_cast<uint2*>(to) = make_uint2(low, high);
    } else if constexpr (kAlignment >= 4) {
      u32* words = reinterpret_cast<u32*>(to);
      words[0] = low, words[1] = high;
    } else {
      u16* halves = reinterpret_cast<u16*>(to);
      halves[0] = u16(low), halves[1] = u16(low >> 16);
      halves[2] = u16(high), halves[3] = u16(high >> 16);
    }
  }
}

/// Address of row 0 of a head.
template <int kDtype>
ATTNFORGE_DEVICE char* head_pointer(const TensorRef& tensor, int batch, int head) {
  if constexpr (is_low_bit(kDtype))
    return static_cast<char*>(tensor.data) +
           bytes_of(kDtype, batch * tensor.stride_batch + head * tensor.stride_head);
  return static_cast<char*>(tensor.data) +
         (batch * tensor.stride_batch + head * tensor.stride_head) * element_bytes(kDtype);
}

/// kCount elements (an even number) to `to`, which is aligned to kAlignment bytes.
template <int kDtype, int kAlignment, int kCount>
ATTNFORGE_DEVICE void store_floats(char* to, const float (&from)[kCount]) {
  static_assert(kCount % 2 == 0, "a word has two 16-bit elements");
  constexpr int kWords = kCount * element_bytes(kDtype) / 4;
  u32 words[kWords];
#pragma unroll
  for (int w = 0; w < kWords; ++w) {
    if constexpr (kDtype == kFp32)
      words[w] = __float_as_uint(from[w]);
    else
      words[w] = pack2<kDtype>(from[2 * w], from[2 * w + 1]);
  }
  store_words<kAlignment>(to, words);
}

}  // namespace attnforge
