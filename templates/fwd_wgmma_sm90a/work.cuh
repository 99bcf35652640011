// work.cuh - what a block of fwd_wgmma_sm90a does: query tiles, one after another, and the key
// tiles that each visits. Every role goes through the same ones, and here is how it comes by them.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "tile/query_tile.cuh"

namespace attnforge {

/// A query tile and its walk over key tiles.
template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aWork {
  using Tile = QueryTile<Params, C.pack_gqa, typename Pieces::Lengths,
                         C.tile_rows() < C.block_m() ? C.tile_rows() : 0, C.begins_early()>;
  using Walk = typename Pieces::Walk;
  using Order = typename Pieces::Order;

  static constexpr bool kListed = Walk::kListed;          // key tiles are gathered from a list
  static constexpr bool kShares = C.grid == kGridShares;  // walks are slices that blocks deal out
  // The producer tells the others which query tile comes with Q.
  static constexpr bool kTellsAll = C.tells_all();
  static constexpr bool kTells = C.tells();
  static_assert(kTellsAll || (Tile::Lengths::kWords == 0 && !kListed),
                "lengths and lists must be told to consumers");
  ATTNFORGE_DEVICE static constexpr int told_words() {
    if constexpr (kListed) return 1 + Tile::kWords + Walk::kWords;
    return 1 + Tile::kWords + (kShares ? 2 : 0);
  }
  static_assert(!kTellsAll || 4 * told_words() <= C.tile_bytes(),
                "the told words must fit tile_bytes()");
  static_assert(kTellsAll || !Order::kMayBeEmpty, "an empty tile must be told");
  /// Told in place of a number after the last tile.
  static constexpr int kNoTile = 0x7fffffff;

  Tile queries;
  Walk walk;

  ATTNFORGE_DEVICE FwdWgmmaSm90aWork(const Tile& q, const Walk& kv) : queries(q), walk(kv) {}
  ATTNFORGE_DEVICE FwdWgmmaSm90aWork(const Params& params, const Tile& tile)
      : queries(tile),
        walk(Walk::of_rows(params, queries, C.block_n, queries.first_row, C.tile_rows())) {}
  ATTNFORGE_DEVICE FwdWgmmaSm90aWork(const Params& params, int tile)
      : FwdWgmmaSm90aWork(params, Tile(params, Order::place(params, tile), C.tile_rows())) {}
  template <class Share>
  ATTNFORGE_DEVICE static FwdWgmmaSm90aWork of_share(const Params& params, const Share& share) {
    FwdWgmmaSm90aWork work(params, Tile(params, share.place(params), C.tile_rows()));
    work.walk.cut(share.slice());
    return work;
  }

  // This work as words in shared memory (kTellsAll).
  ATTNFORGE_DEVICE void store(u32 to) const {
    queries.store(to);
    if constexpr (kListed || kShares) walk.store(to + 4 * Tile::kWords);
  }
  ATTNFORGE_DEVICE static FwdWgmmaSm90aWork load(const Params& params, u32 from) {
    const Tile queries = Tile::load(params, from);
    if constexpr (kListed) return {queries, Walk::load(from + 4 * Tile::kWords)};
    FwdWgmmaSm90aWork work(params, queries);
    if constexpr (kShares) work.walk.load_slice(from + 4 * Tile::kWords);
    return work;
  }

  /// Fully masked rows only: nothing to load, zeros to store.
  ATTNFORGE_DEVICE bool empty() const { return walk.count() == 0; }

  // ---- Numbers of query tiles ----

  ATTNFORGE_DEVICE static int num_tiles(const Params& params) { return Order::tiles(params); }
  /// The tile after `tile` (before the first: -1), unless the grid is kGridDynamic.
  ATTNFORGE_DEVICE static int following(const Params& params, int tile) {
    if (tile < 0) return blockIdx.x;
    return C.grid == kGridPlain ? num_tiles(params) : tile + int(gridDim.x);
  }
};

}  // namespace attnforge
