// swizzle.cuh - where chunks of 16 bytes lie in shared memory, so that ldmatrix meets no conflict.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Rows of kChunks chunks, without padding. The eight rows of one 8 x 8 matrix must lie in eight
/// different chunk columns modulo 8 (128 bytes are all banks). A row moves the column by kChunks,
/// so gcd(kChunks, 8) of the column's values are reached by swapping chunks inside the row, and the
/// rest by the pitch itself: an odd kChunks needs no swapping at all.
template <int kChunks>
struct SwizzledRows {
  static constexpr int kRowBytes = kChunks * 16;
  static constexpr int kSwap = gcd(kChunks, 8);  // chunks are swapped within groups of this many

  /// What a row xors its chunks with; the same for rows that differ by a multiple of 8.
  ATTNFORGE_DEVICE static int swap(int row) { return (row * kSwap / 8) % kSwap; }

  /// Bytes from the start of the tile, which is aligned to 128.
  ATTNFORGE_DEVICE static u32 offset(int row, int chunk) {
    return row * kRowBytes + (chunk ^ swap(row)) * 16;
  }

  /// `chunks` further in the row than `at`, an offset or address whose chunk has none of their
  /// bits.
  ATTNFORGE_DEVICE static u32 further(u32 at, int chunks) {
    return (at ^ (chunks % kSwap * 16)) + chunks / kSwap * kSwap * 16;
  }

  /// Where a lane reads in the rows of any tile, from its row and its chunk (0 or 1) on: chunks
  /// swap places only within a group, so a few offsets and immediates reach the whole row.
  struct Fragment {
    u32 offsets[ceil_div(kSwap, 2)];

    ATTNFORGE_DEVICE Fragment(int row, int chunk) {
#pragma unroll
      for (int i = 0; i < ceil_div(kSwap, 2); ++i) {
        offsets[i] = offset(row, chunk) ^ (i * 32);
        asm volatile("" : "+r"(offsets[i]));  // kept: else computed again in every step
      }
    }

    /// The address `chunks` (even) further in the row; `tile` may be that of any row that is a
    /// multiple of 8.
    ATTNFORGE_DEVICE u32 at(u32 tile, int chunks) const {
      return tile + offsets[chunks % kSwap / 2] + chunks / kSwap * kSwap * 16;
    }
  };
};

/// Rows as TMA lays them out with a swizzle of kSwizzle bytes (128, 64 or 32): column chunks that
/// wide, one after the other, kChunkBytes apart, in each the rows. The tile is aligned to 1024.
template <int kSwizzle, int kChunkBytes>
struct TmaRows {
  static constexpr int kRowBytes = kSwizzle;

  static constexpr int kInRow = kSwizzle / 16;  // 16-byte chunks in a row of a column chunk

  /// The offset, as SwizzledRows has it.
  ATTNFORGE_DEVICE static u32 offset(int row, int chunk) {
    const u32 at = row * kSwizzle + chunk % kInRow * 16;
    return chunk / kInRow * kChunkBytes + (at ^ ((at >> 7 << 4) & (kSwizzle - 16)));
  }
  ATTNFORGE_DEVICE static u32 further(u32 at, int chunks) {
    return (at ^ (chunks % kInRow * 16)) + chunks / kInRow * kChunkBytes;
  }
};

}  // namespace attnforge
