// masked_walk.cuh - Walk whose tiles are all masked: what a text hides is known key by key.
#pragma once

#include "base_params.h"

namespace attnforge {

/// The tiles of another Walk.
template <class Walk>
struct MaskedWalk : Walk {
  template <class Lengths>
  ATTNFORGE_DEVICE static MaskedWalk of_queries(const FwdParams& p, const Lengths& lengths,
                                                int block_n, int first_query, int last_query) {
    return {Walk::of_queries(p, lengths, block_n, first_query, last_query)};
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE static MaskedWalk of_rows(const QueryTile& tile, int block_n, int row,
                                             int rows) {
    return {Walk::of_rows(tile, block_n, row, rows)};
  }
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static MaskedWalk of_rows(const Params&, const QueryTile& tile, int block_n,
                                             int row, int rows) {
    return of_rows(tile, block_n, row, rows);
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE MaskedWalk of_part(const QueryTile&, int, int, int) const {
    return *this;
  }

  ATTNFORGE_DEVICE static constexpr bool masked(int) { return true; }
  template <class Attend>
  ATTNFORGE_DEVICE void for_each(const Attend& attend) const {
    Walk::for_each([&](int place, bool) { attend(place, true); });
  }
};

}  // namespace attnforge
