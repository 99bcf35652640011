// store_rows_staged.cuh - the epilogue of wgmma: accumulators to rows of a 16-bit tensor by way of
// shared memory, in a fraction of the code that exchanges between lanes take (tile/store_rows.cuh).
#pragma once

#include "ptx/convert.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// Stores the first `present` of a warp's 16 rows of accumulators, times `factor`, to rows that
/// begin at `to` and `bytes_apart`, all aligned to 16 bytes. `stage`: the warp's room in shared
/// memory, 16 rows of kChunks chunks of 64 columns as TmaRows has them, aligned to 1024 bytes; what
/// does not fit at once follows. All lanes of the warp must call it.
template <int kDtype, int kChunks, int kChunkBytes, int kFragments>
ATTNFORGE_DEVICE void store_rows_staged(const float (&c)[kFragments][4], float factor, u32 stage,
                                        char* to, i64 bytes_apart, int present, int lane) {
  using Rows = TmaRows<128, kChunkBytes>;
  const u32 own = stage + Rows::offset(lane % 16, lane / 16);
#pragma unroll
  for (int first = 0; first < kFragments; first += 8 * kChunks) {
    const int end = min(first + 8 * kChunks, kFragments), count = end - first;
#pragma unroll
    for (int j = first; j < end; j += 2) {
      u32 words[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (const int f = j + i / 2; f < end)
          words[i] = pack2<kDtype>(c[f][i % 2 * 2] * factor, c[f][i % 2 * 2 + 1] * factor);
      stmatrix_x4(Rows::further(own, j - first), words);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < present * count; i += 32) {
      const u32 r = u32(i) / count, piece = u32(i) % count;
      u32 words[4];
      load_shared_16(words, stage + Rows::offset(r, piece));
      *reinterpret_cast<uint4*>(to + r * bytes_apart + (first + piece) * 16) = make_uint4(
          words[0], words[1], words[2], words[3]);
    }
    __syncwarp();
  }
}

}  // namespace attnforge
