// tma_keys.cuh - Keys of a cache in pages, for TMA: a table says where each page lies.
#pragma once

#include "parts/key_lists/load_ahead.cuh"
#include "parts/key_lists/params.h"
#include "parts/pages/params.h"
#include "ptx/elect.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// C is a family's config: it says how a tile lies in shared memory, in chunks of columns. The
/// argument has a PagesParams `pages`. The maps have the coordinates {column, row, head,
/// page}, and boxes of as many rows as are in one page whatever the tile: each lane of a warp looks
/// up the page of one.
template <auto C>
struct PagedTmaKeys {
  static constexpr bool kAhead = true;
  static constexpr int kBoxKeys = C.box_keys(C.block_n), kBoxes = C.block_n / kBoxKeys;
  static constexpr int kWarps = C.loading_warps(kBoxes), kThreads = 32 * kWarps;
  static_assert(kBoxes <= 32 && kBoxKeys % 8 == 0, "a lane a box, of whole swizzles");

  const int* of_sequence;  // its row of the table
  int head, end;           // the sequence's keys

  template <class QueryTile>
  ATTNFORGE_DEVICE explicit PagedTmaKeys(const QueryTile& tile)
      : head(tile.kv_head()), end(tile.lengths.kv()) {
    const PagesParams& pages = tile.params.pages;
    of_sequence = pages.table + tile.batch * pages.stride_batch;
  }

  /// A tile, what its list says of it, and the page of this lane's box. -1, as for what lies after
  /// the sequence's end: zeros come.
  struct Box : KeyGroup {
    int n, page;
  };
  template <class Walk>
  ATTNFORGE_DEVICE Box of_tile(const Walk& walk, int i) const {
    Box box{};
    if constexpr (Walk::kListed) {
      static_cast<KeyGroup&>(box) = walk.tile(i);
      box.n = from_lane_0(int(box.number & ~KeyGroup::kEdge));
    } else {
      box.n = walk.tile(i);
    }
    const int lane = thread_index() % 32, key = box.n * C.block_n + lane * kBoxKeys;
    const bool present = i < walk.count() && lane < kBoxes && key < end;
    box.page = present ? of_sequence[u32(key) / C.page_size] : -1;
    return box;
  }

  /// Begins to load a tile in kChunks chunks to `to`; its bytes arrive at the barrier `full`. By
  /// all lanes of kWarps warps. One lane of each begins its copies: TMA takes what it is told from
  /// registers that a warp has once, so lanes with a box each would take turns, in a loop that
  /// looks for the next one.
  template <int kChunks>
  ATTNFORGE_DEVICE void load(const TensorMap& map, u32 to, u32 full, const Box& box) const {
    constexpr int kOfWarp = ceil_div(kBoxes, kWarps), kUnrolled = kOfWarp <= 8 ? kOfWarp : 4;
    const int warp = kWarps == 1 ? 0 : from_lane_0(thread_index() / 32 % 4);
    const bool leads = elected();
#pragma unroll kUnrolled
    for (int i = 0; i < kOfWarp; ++i) {
      const int b = i * kWarps + warp;
      if (kBoxes % kWarps != 0 && b >= kBoxes) break;
      const int page = from_lane(box.page, b);
      const int row = kBoxKeys == C.page_size ? 0
                                              : u32(box.n * C.block_n + b * kBoxKeys) % C.page_size;
      if (!leads) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        tma_load_4d(to + c * C.kv_chunk_bytes() + b * kBoxKeys * C.swizzle, map, full, kEvictLast,
                    c * C.chunk_columns(), row, head, page);
    }
  }
};

}  // namespace attnforge
