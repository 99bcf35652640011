// by_grid.cuh - Order and Splits of heads with one query tile each: the dimensions of the grid
// say which, and nothing is divided before the first loads.
#pragma once

#include "base.cuh"
#include "parts/splits/items.cuh"
#include "parts/splits/walk.cuh"

namespace attnforge {

/// Grids of heads, splits and sequences. Heads are K/V heads when heads are packed. kRows: as many
/// rows as a query tile can have.
template <int kRows>
struct GridOrder {
  static constexpr int kMostRows = kRows;
  static constexpr bool kMayRunOut = false, kMayBeEmpty = false, kFinds = false;
  ATTNFORGE_DEVICE static void begin() {}

  /// In place of place() and what a kernel computes from it.
  template <class QueryTile, class Params>
  ATTNFORGE_DEVICE static QueryTile tile(const Params& params) {
    int head, sequence;  // read again where needed, as block_index() is
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(head));
    asm volatile("mov.u32 %0, %%ctaid.z;" : "=r"(sequence));
    return {params, sequence, head, 0, typename QueryTile::Lengths(params, sequence)};
  }
};

/// EvenSplits that slice by a product: the launch knows the inverse of their number.
struct GridSplits : EvenSplits {
  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params& params, int tiles) {
    const int each = int(__umulhi(u32(tiles), params.partials.splits_inverse));
    return TileSlice::of(tiles, each, index(), count(params));
  }
};

}  // namespace attnforge
