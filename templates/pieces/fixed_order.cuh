// fixed_order.cuh - Order of query tiles that the host can count.
#pragma once

#include "tile/tile_order.cuh"

namespace attnforge {

struct FixedOrder {
  /// The query tile with this number, from 0 to tiles - 1.
  template <class Params>
  ATTNFORGE_DEVICE static TilePlace place(const Params& params, int index) {
    return place_tile(params.order, index);
  }
  /// How many there are, for persistent blocks.
  template <class Params>
  ATTNFORGE_DEVICE static int tiles(const Params& params) {
    return params.tiles;
  }
  /// Whether a grid of one block a tile may have blocks without one.
  static constexpr bool kMayRunOut = false;
  /// Whether a tile may have no rows.
  static constexpr bool kMayBeEmpty = false;
  /// Whether find(params) must be called by a warp, and a barrier of the block passed, before the
  /// others but begin().
  static constexpr bool kFinds = false;
  /// To be called before the others.
  ATTNFORGE_DEVICE static void begin() {}
};

}  // namespace attnforge
