// rows_output.cuh - Output of finished rows: o in 16 bits, and lse.
#pragma once

#include "base_params.h"
#include "ptx/special_registers.cuh"
#include "tile/store_rows.cuh"

namespace attnforge {

/// Rows of o are aligned to kAlignment bytes. kLse: lse is written.
template <int kDtype, int kAlignment, bool kLse>
struct RowsOutput {
  /// What becomes of the factor and the lse of a row that has seen all its keys: store() calls it,
  /// and kernels that store their rows themselves.
  template <class QueryTile>
  ATTNFORGE_DEVICE static void finish(const QueryTile&, int, float&, float&) {}
  /// One row of a quad of lanes: half kHalf of accumulators of kStored * 8 columns from
  /// first_column on, times `inverse`. All lanes of a warp must call it, also for rows after the
  /// last, which are not stored.
  template <int kHalf, int kStored, class QueryTile, int kComputed>
  ATTNFORGE_DEVICE static void store(const QueryTile& tile, int row, int first_column,
                                     const float (&o)[kComputed][4], float inverse, float lse) {
    const FwdParams& p = tile.params.fwd;
    const int quad_lane = thread_index() % 4;
    const bool present = tile.has(row);
    u16* to = static_cast<u16*>(p.o.data) + tile.offset_of(p.o, row) + first_column;
    store_row<kDtype, kHalf, kAlignment, kStored>(o, inverse, to, present, quad_lane);
    if constexpr (kLse) {
      if (present && quad_lane == 0 && first_column == 0) p.lse[tile.lse_offset_of(row)] = lse;
    }
  }
};

}  // namespace attnforge
