// dense_pieces.cuh - the dense pieces of a kernel whose keys come by TMA.
#pragma once

#include "pieces/dense_without_keys.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// C is a family's config: it says how a tile lies in shared memory, in chunks of columns. The maps
/// have the coordinates {column, key, head, batch}.
template <auto C>
struct TmaKeys {
  static constexpr int kThreads = 1;
  static constexpr bool kAhead = false;

  int batch, head, begin;

  template <class QueryTile>
  ATTNFORGE_DEVICE explicit TmaKeys(const QueryTile& tile)
      : batch(tile.lengths.batch()), head(tile.kv_head()), begin(tile.lengths.kv_begin()) {}

  /// Begins to load tile n, in kChunks chunks, to `to`; its bytes arrive at the barrier `full`. By
  /// one thread.
  template <int kChunks>
  ATTNFORGE_DEVICE void load(const TensorMap& map, u32 to, u32 full, int n) const {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      tma_load_4d(to + c * C.kv_chunk_bytes(), map, full, kEvictLast, c * C.chunk_columns(),
                  begin + n * C.block_n, head, batch);
    }
  }
};

template <auto C>
struct DenseTmaPieces : DensePiecesWithoutKeys<C> {
  using Keys = TmaKeys<C>;
};

}  // namespace attnforge
