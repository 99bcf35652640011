// tma_keys.cuh - Keys gathered by TMA: groups of neighbours that lie anywhere in the sequence.
#pragma once

#include "parts/key_lists/load_ahead.cuh"
#include "parts/key_lists/params.h"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// C is a family's config: it says how a tile lies in shared memory, in chunks of columns, and how
/// many keys a group has. The maps have the coordinates {column, key, head, batch}, and boxes of
/// as many keys as a group.
template <auto C>
struct GroupedTmaKeys {
  static constexpr int kThreads = 32;
  static constexpr bool kAhead = true;
  static constexpr int kGroups = C.key_groups(), kGroupKeys = C.block_n / kGroups;

  int batch, head, begin;

  template <class QueryTile>
  ATTNFORGE_DEVICE explicit GroupedTmaKeys(const QueryTile& tile)
      : batch(tile.lengths.batch()), head(tile.kv_head()), begin(tile.lengths.kv_begin()) {}

  /// What a walk has of the tile that comes i-th: this lane's group.
  template <class Walk>
  ATTNFORGE_DEVICE KeyGroup of_tile(const Walk& walk, int i) const {
    return walk.tile(i);
  }

  /// Begins to load a tile, of which each lane has a group, in kChunks chunks to `to`; its bytes
  /// arrive at the barrier `full`. By all lanes of a warp.
  template <int kChunks>
  ATTNFORGE_DEVICE void load(const TensorMap& map, u32 to, u32 full, const KeyGroup& group) const {
    const int lane = thread_index() % 32;
    if (lane >= kGroups) return;
    const int key = begin + int(group.number & ~KeyGroup::kEdge) * kGroupKeys;
#pragma unroll
    for (int c = 0; c < kChunks; ++c)
      tma_load_4d(to + c * C.kv_chunk_bytes() + lane * kGroupKeys * C.swizzle, map, full,
                  kEvictLast, c * C.chunk_columns(), key, head, batch);
  }
};

}  // namespace attnforge
