// load_slice.cuh - a slice of a matrix to a swizzled tile in shared memory by cp.async: what lies
// outside of the matrix, rows or columns, becomes zeros. For products whose depth is walked in
// slices; a whole head dim is TileLoader's.
#pragma once

#include "base.cuh"
#include "ptx/cp_async.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// kRows x kChunks chunks of 16 bytes. kCopyBytes is what the matrix's alignment allows.
template <int kRows, int kChunks, int kThreads, int kCopyBytes>
struct SliceLoader {
  using Layout = SwizzledRows<kChunks>;

  /// `from` is the slice's first element; rows are pitch_bytes apart. Of the slice's rows and
  /// chunks the first rows_present and chunks_present are read.
  ATTNFORGE_DEVICE static void load(u32 tile, const char* from, i64 pitch_bytes, int rows_present,
                                    int chunks_present, int thread) {
#pragma unroll 4  // all of them would take the registers that large accumulators leave
    for (int first = 0; first < kRows * kChunks; first += kThreads) {
      const int i = first + thread;
      if (kRows * kChunks % kThreads != 0 && i >= kRows * kChunks) break;
      const int row = i / kChunks, chunk = i % kChunks;
      const bool present = row < rows_present && chunk < chunks_present;
      const char* source = from + (present ? row * pitch_bytes + chunk * 16 : 0);
#pragma unroll
      for (int b = 0; b < 16; b += kCopyBytes) {
        cp_async_or_zero<kCopyBytes>(tile + Layout::offset(row, chunk) + b, source + b, present);
      }
    }
  }
};

}  // namespace attnforge
