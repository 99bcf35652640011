// user_mask.cuh - Mask by the user's text, of keys that the window lets a row see.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "pieces/user_code.cuh"
#include "pieces/window_mask.cuh"
#include "ptx/special.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

/// The text alone, as the rule of a ListMask. Code is the entry's UserCode, or that of a step.
template <class Code>
struct UserRule {
  static constexpr bool kNone = false;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      return [user](float s, int offset) { return user.mask(offset) ? s : negative_infinity(); };
    });
  }

  /// Whether the text lets a query see a key.
  template <class Lengths>
  ATTNFORGE_DEVICE static bool of_pair(const FwdParams& p, const Lengths& lengths, int sequence,
                                       int head, int query, int key) {
    return UserRow<Code>(p, lengths, sequence, head, query, key).mask(0);
  }
};

/// With windows. kLeftBound: see WindowMask.
template <class Code, bool kLeftBound>
struct UserMask : WindowMask<kLeftBound> {
  using Rule = UserRule<Code>;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      VisibleKeys visible = VisibleKeys::of_row(tile.p, tile.lengths, tile.query_of(row));
      visible.first -= lane_key;
      visible.last -= lane_key;
      return [user, visible](float s, int offset) {
        const float in_window = masked<kLeftBound>(s, offset, visible);
        return user.mask(offset) ? in_window : negative_infinity();
      };
    });
  }
};

}  // namespace attnforge
