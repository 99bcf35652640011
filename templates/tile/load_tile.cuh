// load_tile.cuh - the plain loader: rows of a tensor to a swizzled tile, by all threads of a block.
#pragma once

#include "ptx/cp_async.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// A tile of kRows rows of kDataChunks chunks of 16 bytes each. In shared memory rows are kChunks
/// apart: more than kDataChunks where the matrix instructions want zeros after a head dim, or
/// another pitch. The chunks between are not touched here. kCopyBytes is what the tensor's
/// alignment allows; kRowBytes, of which the last chunk may be a part, are a multiple of it.
/// kWholeLines: of rows that are a part of a line of memory, whose rest another block soon reads.
template <int kRows, int kDataChunks, int kChunks, int kThreads, int kCopyBytes,
          int kRowBytes = 16 * kDataChunks, bool kWholeLines = false>
struct TileLoader {
  using Layout = SwizzledRows<kChunks>;
  static constexpr int kTileRows = kRows;
  /// Lanes that share a row: the widest that wastes least, but never fewer than share a swizzle.
  static constexpr bool kWide = round_up(kDataChunks, 8) <= round_up(kDataChunks, 4) ||
                                (Layout::kSwap > 4 && kDataChunks > 4);
  static constexpr int kLanesPerRow = kWide && kThreads >= 64 ? 8 : 4;
  static constexpr int kRowsPerPass = kThreads / kLanesPerRow;
  static_assert(kRowsPerPass % 8 == 0, "a thread's rows must share one swizzle");
  static_assert(kLanesPerRow % Layout::kSwap == 0 || kDataChunks <= kLanesPerRow,
                "a thread's chunks must share one swizzle");

  u32 smem_offset;  // of this thread's first chunk
  int row;          // its first row
  int chunk;        // its first chunk

  ATTNFORGE_DEVICE explicit TileLoader(int thread)
      : row(thread / kLanesPerRow), chunk(thread % kLanesPerRow) {
    smem_offset = Layout::offset(row, chunk);
  }

  /// The row that this thread copies in a pass over the tile.
  ATTNFORGE_DEVICE int row_of(int pass) const { return row + pass * kRowsPerPass; }

  /// source(pass) is where row_of(pass) of the tile starts in global memory, plus chunk * 16 bytes.
  /// Rows from `rows_present` on are filled with zeros and not read, if kBounded; else all are
  /// present.
  template <bool kBounded, class Source>
  ATTNFORGE_DEVICE void load(u32 tile, const Source& source, int rows_present) const {
#pragma unroll
    for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
      if (kRows % kRowsPerPass != 0 && row_of(pass) >= kRows) break;
      const bool present = !kBounded || row_of(pass) < rows_present;
      const char* from = source(pass);
      const u32 to = tile + smem_offset + pass * kRowsPerPass * Layout::kRowBytes;
#pragma unroll
      for (int c = 0; c < kDataChunks; c += kLanesPerRow) {
        if (c + kLanesPerRow > kDataChunks && chunk + c >= kDataChunks) continue;
#pragma unroll
        for (int b = 0; b < 16; b += kCopyBytes) {
          if (kRowBytes % 16 != 0 && (chunk + c) * 16 + b >= kRowBytes) continue;
          if constexpr (kBounded) {
            cp_async_or_zero<kCopyBytes>(to + c * 16 + b, from + c * 16 + b, present);
          } else {
            cp_async<kCopyBytes, kWholeLines>(to + c * 16 + b, from + c * 16 + b);
          }
        }
      }
    }
  }

  /// Zeros in the chunks after the data, once before the first use of a tile's memory. Visible
  /// after a block barrier.
  ATTNFORGE_DEVICE static void clear_padding(u32 tile, int thread) {
    if constexpr (kRowBytes % 16 != 0) {
      for (int r = thread; r < kRows; r += kThreads)
#pragma unroll
        for (int b = kRowBytes % 16; b < 16; b += 4)
          store_shared(tile + Layout::offset(r, kDataChunks - 1) + b, 0);
    }
    if constexpr (kChunks > kDataChunks) {
      for (int r = thread; r < kRows; r += kThreads) {
#pragma unroll
        for (int c = kDataChunks; c < kChunks; ++c) {
          store_shared_16(tile + Layout::offset(r, c), {0, 0, 0, 0});
        }
      }
    }
  }
};

}  // namespace attnforge
