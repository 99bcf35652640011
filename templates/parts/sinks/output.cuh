// output.cuh - Output of rows whose softmax counts the logit of their head.
#pragma once

#include "parts/sinks/params.h"
#include "pieces/rows_output.cuh"
#include "tile/valueless_score.cuh"

namespace attnforge {

/// A row counts its sink once, after its last key: a block that has seen only some of a row's keys
/// must not store through this piece. Whatever adds such parts up calls count_valueless() with the
/// lse of all of them. The argument has a SinkParams `sinks`.
template <int kDtype, int kAlignment, bool kLse>
struct SinkOutput {
  using Rows = RowsOutput<kDtype, kAlignment, kLse>;

  template <class QueryTile>
  ATTNFORGE_DEVICE static void finish(const QueryTile& tile, int row, float& inverse, float& lse) {
    inverse *= count_valueless(lse, __ldg(tile.params.sinks.logits + tile.query_head_of(row)));
  }
  template <int kHalf, int kStored, class QueryTile, int kComputed>
  ATTNFORGE_DEVICE static void store(const QueryTile& tile, int row, int first_column,
                                     const float (&o)[kComputed][4], float inverse, float lse) {
    finish(tile, row, inverse, lse);
    Rows::template store<kHalf, kStored>(tile, row, first_column, o, inverse, lse);
  }
};

}  // namespace attnforge
