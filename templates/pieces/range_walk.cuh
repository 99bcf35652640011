// range_walk.cuh - Walk over the keys from first to last that some row of a query tile sees.
#pragma once

#include "tile/visible_keys.cuh"

namespace attnforge {

/// Tiles of as many keys as a key tile has, begin to end - 1. Tiles in [clear_begin, clear_end) are
/// visible to every row. kLeftBound: rows do not see all keys to their left; else both beginnings
/// are the constant 0, which costs the main loop no register.
template <bool kLeftBound>
struct RangeWalk {
  static constexpr bool kListed = false;

  int begin, clear_begin, clear_end, end;

  /// The walk of the queries first_query to last_query of a sequence, both included.
  template <class Lengths>
  ATTNFORGE_DEVICE static RangeWalk of_queries(const FwdParams& p, const Lengths& lengths,
                                               int block_n, int first_query, int last_query) {
    const VisibleKeys top = VisibleKeys::of_row(p, lengths, first_query),
                      bottom = VisibleKeys::of_row(p, lengths, last_query);
    RangeWalk walk;
    walk.begin = kLeftBound ? max(top.first, 0) / block_n : 0;
    walk.end = max((bottom.last + block_n) / block_n, walk.begin);
    walk.clear_end = min(max(max(top.last + 1, 0) / block_n, walk.begin), walk.end);
    const int all_see_from = kLeftBound ? (max(bottom.first, 0) + block_n - 1) / block_n : 0;
    walk.clear_begin = kLeftBound ? min(max(all_see_from, walk.begin), walk.clear_end) : 0;
    return walk;
  }

  /// How many key tiles these queries have, which are query tile m_block of a head.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static int count_of(const Params& params, const Lengths& lengths, int block_n,
                                       int, int, int first_query, int last_query) {
    return of_queries(params.fwd, lengths, block_n, first_query, last_query).count();
  }

  /// The walk of `rows` rows of a query tile (tile/query_tile.cuh) from `row` on.
  template <class QueryTile>
  ATTNFORGE_DEVICE static RangeWalk of_rows(const QueryTile& tile, int block_n, int row, int rows) {
    const int last_row = max(min(row + rows, tile.end_row()) - 1, row);
    return of_queries(tile.params.fwd, tile.lengths, block_n, tile.query_of(row),
                      tile.query_of(last_row));
  }

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static RangeWalk of_rows(const Params&, const QueryTile& tile, int block_n,
                                            int row, int rows) {
    return of_rows(tile, block_n, row, rows);
  }

  /// This walk, whose masked() asks some of the rows alone.
  template <class QueryTile>
  ATTNFORGE_DEVICE RangeWalk of_part(const QueryTile& tile, int block_n, int row, int rows) const {
    RangeWalk part = of_rows(tile, block_n, row, rows);
    part.begin = begin;
    part.end = end;
    return part;
  }

  /// The tiles of this walk that some of the rows see anything of. Rows that the head has not see
  /// none.
  template <class QueryTile>
  ATTNFORGE_DEVICE RangeWalk seen_by(const QueryTile& tile, int block_n, int row, int rows) const {
    RangeWalk part = of_rows(tile, block_n, row, rows);
    part.end = tile.has_any(row, rows) ? max(min(part.end, end), begin) : begin;
    part.begin = min(max(part.begin, begin), part.end);
    return part;
  }
  /// How many of these tiles come before those of `part`, and how many after.
  ATTNFORGE_DEVICE int before(const RangeWalk& part) const { return end - part.end; }
  ATTNFORGE_DEVICE int after(const RangeWalk& part) const { return part.begin - begin; }

  // Walking by index: the tile that comes i-th. The last keys come first.

  ATTNFORGE_DEVICE int count() const { return end - begin; }
  ATTNFORGE_DEVICE int tile(int i) const { return end - 1 - i; }
  /// Whether some row does not see all keys of the tile.
  ATTNFORGE_DEVICE bool masked(int i) const {
    return i < end - clear_end || (kLeftBound && i >= end - clear_begin);
  }
  ATTNFORGE_DEVICE bool is_clear(int n) const { return n < clear_end && n >= clear_begin; }

  // Walking by place, which is the tile's number: one loop keeps it and nothing else.

  ATTNFORGE_DEVICE int first() const { return end - 1; }
  ATTNFORGE_DEVICE static int later(int place, int tiles) { return place - tiles; }
  /// Whether a tile comes there. Of places at or after first().
  ATTNFORGE_DEVICE bool has(int place) const { return place >= begin; }
  ATTNFORGE_DEVICE static int tile_at(int place) { return place; }
  /// How many tiles further the next one lies.
  ATTNFORGE_DEVICE static constexpr int step(int) { return -1; }

  /// Calls attend(place, masked) for all tiles.
  template <class Attend>
  ATTNFORGE_DEVICE void for_each(const Attend& attend) const {
    int n = end - 1;
    // Keys that some rows do not see, for being right of them; keys that all rows see; keys that
    // some do not see, for being left of them: no tile is asked. Rolled: one copy of the code
    // serves all ranges, and compiles in two thirds of the time.
#pragma unroll 1
    for (int range = 0; range < (kLeftBound ? 3 : 2); ++range) {
      const int range_end = range == 0 ? clear_end : range == 1 ? clear_begin : begin;
#pragma unroll 1
      for (; n >= range_end; --n) attend(n, range != 1);
    }
  }
};

}  // namespace attnforge
