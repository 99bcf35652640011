// store_floats.cuh - fp32 to neighbouring elements of any dtype and alignment.
#pragma once

#include "base.cuh"
#include "ptx/convert.cuh"
#include "tile/words.cuh"

namespace attnforge {

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
