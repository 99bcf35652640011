// walk.cuh - Walk, Order, Output and Splits of a kernel whose query tiles have several blocks: each
// walks over a slice of the tile's keys, and writes what its rows make of them. Where heads have
// one query tile each, the dimensions of the grid say which.
#pragma once

#include "parts/splits/items.cuh"
#include "parts/splits/params.h"
#include "ptx/grid_dependency.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Which split of its query tile a block has. Read again where needed, as block_index() is.
ATTNFORGE_DEVICE int split_index() {
  int x;
  asm volatile("mov.u32 %0, %%ctaid.y;" : "=r"(x));
  return x;
}

/// Where the partial results of a row lie: that of split i at first + i * apart, in rows of
/// PartialParams.
struct SplitsOfRow {
  i64 first, apart;
  int count;
};

/// Splits of a kernel whose query tiles have as many each, all of one length: the second dimension
/// of the grid. The argument has a PartialParams `partials`.
struct EvenSplits {
  ATTNFORGE_DEVICE static int index() { return split_index(); }
  /// All threads of a block that is to call of_row() call this.
  template <class Params>
  ATTNFORGE_DEVICE static void count_all(const Params&) {}
  template <class Params>
  ATTNFORGE_DEVICE static int count(const Params& params) {
    return params.partials.splits;
  }
  /// This block's slice of a walk of this many tiles.
  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params& params, int tiles) {
    return TileSlice::of(tiles, index(), count(params));
  }
  /// The splits of row `row` of head `head` of tensor `tensor`.
  template <class Params>
  ATTNFORGE_DEVICE static SplitsOfRow of_row(const Params& params, int tensor, int head, int row) {
    const PartialParams& partials = params.partials;
    const i64 of_all = (i64(tensor) * params.fwd.num_heads_q + head) * partials.rows_of_head + row;
    return {of_all * partials.splits, 1, partials.splits};
  }
  /// Where this block's split of a row lies.
  template <class Params>
  ATTNFORGE_DEVICE static i64 place(const Params& params, int tensor, int head, int row) {
    return of_row(params, tensor, head, row).first + index();
  }
};

/// Leaves of a walk the tiles of a slice.
template <class Walk>
ATTNFORGE_DEVICE void keep_slice(Walk& walk, const TileSlice& slice) {
  if constexpr (Walk::kListed) {
    if (slice.first < slice.last) walk.groups = walk.groups_at(slice.last - 1);
    walk.tiles = slice.last - slice.first;
  } else {
    walk.begin = walk.end - slice.last;
    walk.end -= slice.first;
    walk.clear_end = min(max(walk.clear_end, walk.begin), walk.end);
    walk.clear_begin = min(max(walk.clear_begin, walk.begin), walk.clear_end);
  }
}

/// A slice of another Walk, of which only the first may begin with a ragged tile. `Its` are the
/// Splits.
template <class Walk, class Its>
struct SplitWalk : Walk {
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static SplitWalk of_rows(const Params& params, const QueryTile& tile,
                                            int block_n, int row, int rows) {
    SplitWalk walk{Walk::of_rows(params, tile, block_n, row, rows)};
    keep_slice(walk, Its::slice(params, walk.count()));
    return walk;
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE SplitWalk of_part(const QueryTile& tile, int block_n, int row, int rows) const {
    return {Walk::of_part(tile, block_n, row, rows)};
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE SplitWalk seen_by(const QueryTile& tile, int block_n, int row, int rows) const {
    return {Walk::seen_by(tile, block_n, row, rows)};
  }
};

/// The order of query tiles, for each split: grids have the splits as their second dimension.
template <class Order>
struct SplitOrder : Order {
  ATTNFORGE_DEVICE static void begin() {
    Order::begin();
    start_next_grid();  // what merges waits for the end of this one
  }
};

/// Output of rows to `partials`.
template <int kHeadDimV, class Splits>
struct PartialOutput {
  /// Stores as RowsOutput does.
  template <int kHalf, int kStored, class QueryTile, int kComputed>
  ATTNFORGE_DEVICE static void store(const QueryTile& tile, int row, int first_column,
                                     const float (&o)[kComputed][4], float inverse, float lse) {
    if (!tile.has(row)) return;
    const auto& params = tile.params;
    const int quad_lane = thread_index() % 4;
    const i64 at = Splits::place(params, tile.lengths.batch(), tile.query_head_of(row),
                                 tile.lengths.q_begin() + tile.query_of(row));
    if (quad_lane == 0 && first_column == 0) params.partials.lse[at] = lse;
    if (lse == negative_infinity()) return;
    float* const to = params.partials.o + at * kHeadDimV + first_column + quad_lane * 2;
#pragma unroll
    for (int j = 0; j < kStored; ++j)
      *reinterpret_cast<float2*>(to + j * 8) = make_float2(o[j][2 * kHalf] * inverse,
                                                           o[j][2 * kHalf + 1] * inverse);
  }
};

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
