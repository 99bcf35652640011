// query_walk.cuh - which query tiles see a tile of keys: what RangeWalk says of keys, seen from the
// other side. For the backward pass, whose blocks keep keys and walk over queries.
#pragma once

#include "base_params.h"

namespace attnforge {

/// Which query rows see one key: first to last, both included, not cut to those that exist.
struct SeeingQueries {
  int first, last;

  /// Lengths is that of the key's sequence (templates/pieces/README.md).
  template <class Lengths>
  ATTNFORGE_DEVICE static SeeingQueries of_key(const FwdParams& p, const Lengths& lengths,
                                               int key) {
    const int query = key + lengths.q() - lengths.kv();  // whose position is the key's
    return {query - p.window_right, query + p.window_left};
  }
};

/// A query tile of one of the heads that share a key tile.
struct QueryPlace {
  int head, m;
};

/// Tiles of block_m query rows of a head, begin to end - 1: those with a row that sees some key of
/// a key tile. In [clear_begin, clear_end) every row sees all keys, and the tile has no place for
/// keys after the last: such a key's score is 0, which is not small next to a very negative lse.
/// Rows after the last query do not count: they have no probabilities. kLeftBound, kRightBound:
/// rows do not see all keys to their left, to their right. kAllMasked: a text may hide any key.
template <bool kLeftBound, bool kRightBound, bool kAllMasked = false>
struct QueryWalk {
  /// Whether heads have tiles of their own (parts/query_bits/queries.cuh), or all have these.
  static constexpr bool kListed = false;

  int begin, clear_begin, clear_end, end;

  /// The walk of a KeyTile.
  template <class Params, class Tile>
  ATTNFORGE_DEVICE static QueryWalk of_tile(const Params&, const Tile& keys, int block_m,
                                            int block_n) {
    return of_keys(keys.params.fwd, keys.lengths, block_m, keys.first_key, block_n);
  }
  /// The walk of the keys first_key to first_key + block_n - 1 of a sequence.
  template <class Lengths>
  ATTNFORGE_DEVICE static QueryWalk of_keys(const FwdParams& p, const Lengths& lengths, int block_m,
                                            int first_key, int block_n) {
    const int rows = lengths.q(), end_key = min(first_key + block_n, lengths.kv());
    const SeeingQueries top = SeeingQueries::of_key(p, lengths, first_key),
                        bottom = SeeingQueries::of_key(p, lengths, end_key - 1);
    QueryWalk walk;
    walk.begin = kRightBound ? max(top.first, 0) / block_m : 0;
    const int end_row = first_key >= end_key ? 0 : kLeftBound ? min(bottom.last + 1, rows) : rows;
    walk.end = max((end_row + block_m - 1) / block_m, walk.begin);
    if (first_key + block_n > lengths.kv()) {
      walk.clear_begin = walk.clear_end = walk.end;
    } else {
      const bool all_to_end = !kLeftBound || top.last >= rows - 1;
      const int clear_rows_end = kLeftBound ? max(top.last + 1, 0) : 0;
      walk.clear_end = all_to_end ? walk.end
                                  : min(max(clear_rows_end / block_m, walk.begin), walk.end);
      const int all_see_from = kRightBound ? (max(bottom.first, 0) + block_m - 1) / block_m : 0;
      walk.clear_begin = kRightBound ? min(max(all_see_from, walk.begin), walk.clear_end)
                                     : walk.begin;
    }
    return walk;
  }

  ATTNFORGE_DEVICE int count() const { return end - begin; }
  /// Whether some row of query tile m does not see all keys.
  ATTNFORGE_DEVICE bool masked(int m) const {
    return kAllMasked || m < clear_begin || (kLeftBound && m >= clear_end);  // else that is `end`
  }
};

}  // namespace attnforge
