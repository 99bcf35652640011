// work.cuh - what a block does: a key tile, and the query tiles of its group's heads that see it.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/query_walk.cuh"
#include "backward/scratch.cuh"
#include "bwd_mma_sm80/config.h"
#include "ptx/special_registers.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

template <BwdMmaSm80Config C, class Pieces, class Params>
struct BwdMmaSm80Work {
  using Tile = KeyTile<Params, typename Pieces::Lengths>;
  using Walk = typename Pieces::Queries;
  using Place = QueryPlace;

  /// Whether heads have query tiles of their own, which a step before this kernel may write.
  static constexpr bool kListed = Walk::kListed;

  const Tile keys;
  const Walk walk;
  const int end_head;

  ATTNFORGE_DEVICE BwdMmaSm80Work(const Params& params, const Tile& key_tile)
      : keys(key_tile),
        walk(Walk::of_tile(params, key_tile, C.block_m, C.block_n)),
        end_head(key_tile.first_query_head() + key_tile.group()) {}

  ATTNFORGE_DEVICE static Tile this_tile(const Params& params) {
    return Tile(params, place_tile(params.order, block_index()), C.block_n);
  }

  // Tiles of a head come in ascending order, then those of the next.
  ATTNFORGE_DEVICE bool has(const Place& place) const { return place.head < end_head; }
  ATTNFORGE_DEVICE Place first() const {
    if constexpr (kListed) return walk.first();
    return {walk.count() == 0 ? end_head : keys.first_query_head(), walk.begin};
  }
  ATTNFORGE_DEVICE Place last() const {
    if constexpr (kListed) return walk.last();
    return {end_head - 1, walk.end - 1};
  }
  ATTNFORGE_DEVICE Place after(Place place) const {
    if constexpr (kListed) return walk.after(place);
    if (++place.m == walk.end) place = {place.head + 1, walk.begin};
    return place;
  }
  ATTNFORGE_DEVICE Place before(const Place& place) const {
    if constexpr (kListed) return walk.before(place);
    return place.m == walk.begin ? Place{place.head - 1, walk.end - 1}
                                 : Place{place.head, place.m - 1};
  }
  /// `tiles` tiles after this one, which is known to the compiler.
  ATTNFORGE_DEVICE Place later(Place place, int tiles) const {
#pragma unroll
    for (int i = 0; i < tiles; ++i) place = after(place);
    return place;
  }
  /// Whether some row does not see all keys.
  ATTNFORGE_DEVICE bool masked(const Place& place) const {
    if constexpr (kListed)
      return walk.masked(place);
    else
      return walk.masked(place.m);
  }
  /// Where rows of a query tile lie in the scratch arrays.
  ATTNFORGE_DEVICE i64 scratch_row(const BwdScratch& scratch, const Place& place) const {
    return scratch_row_of_head(keys.params.fwd, scratch, keys.lengths, place.head) +
           scratch_row_in_head<C.block_m>(keys.lengths, keys.sequence) + place.m * C.block_m;
  }
};

}  // namespace attnforge
