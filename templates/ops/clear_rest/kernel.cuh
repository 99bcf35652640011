// kernel.cuh - zeros in rows that no kernel writes: of each piece of an array from a row on that
// only the GPU knows.
#pragma once

#include "ops/clear_rest/params.h"

namespace attnforge {

/// Blocks take arrays by turns; the grid is a multiple of their number.
struct ClearRest {
  static constexpr int kThreads = 256;

  ATTNFORGE_DEVICE static void run(const ClearRestParams& params) {
    const RowsToClear& array = params.arrays[blockIdx.x % params.count];
    const i64 block = blockIdx.x / params.count, blocks = gridDim.x / params.count;
    const i64 thread = block * kThreads + threadIdx.x, threads = blocks * kThreads;
    if ((array.row_bytes | i64(array.data)) % 16 == 0)
      clear<float4>(array, thread, threads);
    else
      clear<float>(array, thread, threads);
  }

 private:
  template <class Word>
  ATTNFORGE_DEVICE static void clear(const RowsToClear& array, i64 thread, i64 threads) {
    const i64 words = array.row_bytes / i64(sizeof(Word));
    // What is wrong must not write outside of the array.
    const i64 begin = min(i64(max(*array.begin, 0)), array.rows);
    const i64 of_piece = (array.rows - begin) * words;
    Word* const to = static_cast<Word*>(array.data) + begin * words;
    for (i64 i = thread; i < of_piece * array.pieces; i += threads)
      to[i / of_piece * array.rows * words + i % of_piece] = Word{};
  }
};

}  // namespace attnforge
