// tma_keys.cuh - Keys of a tensor with a constant stride from key to key, for TMA.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// C is a family's config: it says how a tile lies in shared memory, in chunks of columns, and how
/// many blocks share its loads. The maps have the coordinates {column, key, head, batch}.
template <auto C>
struct TmaKeys {
  int batch, head, begin;

  template <class QueryTile>
  ATTNFORGE_DEVICE explicit TmaKeys(const QueryTile& tile)
      : batch(tile.lengths.batch()), head(tile.kv_head()), begin(tile.lengths.kv_begin()) {}

  /// Begins to load tile n, in kChunks chunks, to `to`; its bytes arrive at the barrier `full`. By
  /// one thread.
  template <int kChunks>
  ATTNFORGE_DEVICE void load(const TensorMap& map, u32 to, u32 full, int n) const {
    // Of a cluster each block loads its share of the rows, for both.
    constexpr int kRows = C.block_n / C.cluster;
    const int first = C.cluster > 1 ? cluster_rank() * kRows : 0;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const u32 chunk = to + c * C.kv_chunk_bytes() + first * C.swizzle;
      const int column = c * C.chunk_columns(), row = begin + n * C.block_n + first;
      if constexpr (C.cluster > 1)
        tma_load_4d_multicast(chunk, map, full, kEvictLast, 3, column, row, head, batch);
      else
        tma_load_4d(chunk, map, full, kEvictLast, column, row, head, batch);
    }
  }
};

}  // namespace attnforge
