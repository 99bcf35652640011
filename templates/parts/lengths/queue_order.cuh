// queue_order.cuh - Order of query tiles whose number only the device knows.
#pragma once

#include "parts/lengths/params.h"
#include "ptx/grid_dependency.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// The argument has a LengthsParams `lengths` whose list the step before has written. Heads are
/// taken in groups as in FixedOrder; params.order.heads are those of one sequence, and its other
/// fields are not read.
struct QueueOrder {
  template <class Params>
  ATTNFORGE_DEVICE static TilePlace place(const Params& params, int index) {
    const TileQueue* list = params.lengths.work;
    TileOrder order = params.order;
    order.m_blocks = list->tiles;
    order.heavy_last = 0;  // the list begins with the heaviest
    const TilePlace in_list = place_tile(order, index);
    const QueuedTile item = reinterpret_cast<const QueuedTile*>(list + 1)[in_list.m_block];
    return {item.m_block, item.sequence * order.heads + in_list.head};
  }
  template <class Params>
  ATTNFORGE_DEVICE static int tiles(const Params& params) {
    return params.lengths.work->tiles * params.order.heads;
  }
  static constexpr bool kMayRunOut = true, kMayBeEmpty = false, kFinds = false;
  /// Before the first of the others: until the list is there.
  ATTNFORGE_DEVICE static void begin() { await_previous_grid(); }
};

}  // namespace attnforge
