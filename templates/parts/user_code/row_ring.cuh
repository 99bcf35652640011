// row_ring.cuh - tiles of an aligned array in a ring, for a kernel with warps that load them while
// others compute.
#pragma once

#include "parts/user_code/row_tiles.cuh"
#include "ptx/mbarrier.cuh"

namespace attnforge {

/// C is the config of such a kernel: a ring of k_stages tiles, block_m() by block_n, and their
/// barriers begins row_ring_begin() bytes after `smem`. Tiles are numbered from 0 on, in a block.
template <auto C, class Code, class Score>
struct RingScore : Score {
  using Element = typename Code::RowElement;
  using Tile = RowTile<Element, C.block_m(), C.block_n>;
  static constexpr u32 kStages = C.k_stages;
  static constexpr int kLoaders = 96;  // threads

  ATTNFORGE_DEVICE static u32 tile(u32 smem, u32 n) {
    return smem + C.row_ring_begin() + n % kStages * C.row_tile_bytes();
  }
  // Full: all loaders' copies have come. Empty: every warp that computes has read the tile.
  ATTNFORGE_DEVICE static u32 full(u32 smem, u32 n) {
    return tile(smem, 0) + 8 * (n % kStages) + kStages * C.row_tile_bytes();
  }
  ATTNFORGE_DEVICE static u32 empty(u32 smem, u32 n) { return full(smem, n) + 8 * kStages; }
  ATTNFORGE_DEVICE static u32 parity(u32 n) { return n / kStages % 2; }

  /// By all threads, before others are made visible.
  ATTNFORGE_DEVICE static void init_barriers(u32 smem) {
    for (u32 n = 0; n < (thread_index() == 0 ? kStages : 0); ++n) {
      mbarrier_init(full(smem, n), kLoaders);
      mbarrier_init(empty(smem, n), 4 * C.warpgroups);
    }
  }

  /// By the loaders, of which this is number `thread`. Copies arrive when they are done: a tile is
  /// on its way while the next is asked for.
  template <class QueryTile>
  ATTNFORGE_DEVICE static void load(u32 smem, u32 n, const QueryTile& queries, int first_key,
                                    int thread) {
    mbarrier_wait(empty(smem, n), parity(n) ^ 1);
    Tile{tile(smem, n)}.template load<Code>(queries, queries.first_row, first_key, thread,
                                            kLoaders);
    cp_async_arrive(full(smem, n));
  }

  /// A warp's way through the tiles: it applies and releases each, or skips it.
  template <class Scores>
  struct Ahead {
    u32 n = 0;

    template <class QueryTile>
    ATTNFORGE_DEVICE void apply(const Scores& scores, const QueryTile& queries, u32 smem) const {
      mbarrier_wait(full(smem, n), parity(n));
      const int row = scores.row - MmaFragment::row(thread_index() % 32) - queries.first_row;
      Score::change(scores, queries, TileElements<Element, Tile>{{tile(smem, n)}, row});
    }
    /// After maxima were found of what was read: an arrival does not wait for reads before it.
    ATTNFORGE_DEVICE void release(u32 smem) {
      if (thread_index() % 32 == 0) mbarrier_arrive(empty(smem, n));
      ++n;
    }
    /// Waits, too: else two arrivals might be of one phase.
    ATTNFORGE_DEVICE void skip(u32 smem) {
      mbarrier_wait(full(smem, n), parity(n));
      release(smem);
    }
  };
};

}  // namespace attnforge
