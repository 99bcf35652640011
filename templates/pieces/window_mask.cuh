// window_mask.cuh - Mask of tiles that rows see only in part: by windows, or after the last key.
#pragma once

#include "tile/fragment_scores.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

/// kLeftBound: rows do not see all keys to their left.
template <bool kLeftBound>
struct WindowMask {
  static constexpr bool kLeft = kLeftBound;

  /// -inf to the scores of keys that their row does not see. `tile` is the QueryTile of the rows.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    scores.for_each([&](int row, int lane_key) {
      VisibleKeys visible = VisibleKeys::of_row(tile.params.fwd, tile.lengths, tile.query_of(row));
      visible.first -= lane_key;
      visible.last -= lane_key;
      return [visible](float s, int offset) { return masked<kLeftBound>(s, offset, visible); };
    });
  }

  template <int kFragments, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const FragmentScores<float[kFragments][4]>& scores,
                                     const QueryTile& tile) {
    hide_outside<kLeftBound>(scores, [&](int row) {
      return VisibleKeys::of_row(tile.params.fwd, tile.lengths, tile.query_of(row));
    });
  }

  /// Whether any of the rows first_row to last_row sees any of `keys` keys.
  template <class QueryTile>
  ATTNFORGE_DEVICE static bool sees(const QueryTile& tile, int first_row, int last_row,
                                    int first_key, int keys) {
    const VisibleKeys top = VisibleKeys::of_row(tile.params.fwd, tile.lengths,
                                                tile.query_of(first_row)),
                      bottom = VisibleKeys::of_row(tile.params.fwd, tile.lengths,
                                                   tile.query_of(last_row));
    return first_key <= bottom.last && (!kLeftBound || first_key + keys > top.first);
  }
};

}  // namespace attnforge
