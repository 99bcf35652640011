// product.cuh - a tile of Q K^T, a chunk of the columns at a time: by tensor cores of 16 bits, else
// by fp32 multiply-adds.
#pragma once

#include "ops/weights/config.h"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/elements.cuh"

namespace attnforge {

/// A warp has 16 rows of Q and all keys; where its lanes' elements lie says MmaFragment. Rows of Q,
/// then those of K, begin kPitch bytes apart in shared memory.
template <WeightsConfig C>
struct TileProduct {
  static constexpr int kFragments = C.kKeys / 8;  // of 8 keys
  static constexpr int kElement = element_bytes(C.dtype), kColumns = C.kChunkBytes / kElement;
  static constexpr int kPieces = C.kChunkBytes / 16;  // of a row
  static constexpr u32 kRowBytes = C.kPitch, kKeysBegin = C.kRows * C.kPitch;

  /// Columns `first` and on of rows of a tensor to shared memory; 0 where a row or a column is not.
  /// address(row): where a row begins, null where there is none.
  template <class Address>
  ATTNFORGE_DEVICE static void load(u32 to, int first, const Address& address) {
    static_assert(C.kThreads % kPieces == 0 && C.kRows == C.kKeys, "passes of whole rows");
    const int column = first + int(threadIdx.x) % kPieces * (16 / kElement);
#pragma unroll
    for (int pass = 0; pass < C.kRows; pass += C.kThreads / kPieces) {
      const int row = pass + int(threadIdx.x) / kPieces;
      const char* const from = address(row);
      u32 words[4] = {};
      if (from != nullptr && column < C.head_dim)
        load_words<C.alignment>(from + column * kElement, words);
      store_shared_16(to + row * kRowBytes + threadIdx.x % kPieces * 16, words);
    }
  }

  /// Adds the product of what is in shared memory.
  ATTNFORGE_DEVICE static void add(u32 smem, float (&s)[kFragments][4]) {
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if constexpr (C.dtype == kFp32) {
      add_fp32(smem + (warp * 16 + lane / 4) * kRowBytes,
               smem + kKeysBegin + lane % 4 * 2 * kRowBytes, s);
    } else {
      const u32 rows = smem + (warp * 16 + lane % 16) * kRowBytes + lane / 16 * 16;
      const u32 keys = smem + kKeysBegin + (lane % 8 + lane / 16 * 8) * kRowBytes +
                       lane / 8 % 2 * 16;
#pragma unroll
      for (int column = 0; column < kColumns; column += 16) {
        u32 a[4];
        ldmatrix_x4(a, rows + column * kElement);
#pragma unroll
        for (int f = 0; f < kFragments; f += 2) {
          u32 b[4];
          ldmatrix_x4(b, keys + f * 8 * kRowBytes + column * kElement);
          mma_m16n8k16<C.dtype>(s[f], a, b[0], b[1]);
          mma_m16n8k16<C.dtype>(s[f + 1], a, b[2], b[3]);
        }
      }
    }
  }

 private:
  /// `rows`: the lane's first row of Q; `keys`: its first key.
  ATTNFORGE_DEVICE static void add_fp32(u32 rows, u32 keys, float (&s)[kFragments][4]) {
#pragma unroll 1
    for (int column = 0; column < kColumns; column += 4) {
      float q[2][4];
      load_shared(q[0], rows + column * kElement);
      load_shared(q[1], rows + 8 * kRowBytes + column * kElement);
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float k[4];
          load_shared(k, keys + (f * 8 + e) * kRowBytes + column * kElement);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            s[f][e] += q[0][i] * k[i];
            s[f][2 + e] += q[1][i] * k[i];
          }
        }
      }
    }
  }
};

}  // namespace attnforge
