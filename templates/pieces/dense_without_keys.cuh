// dense_without_keys.cuh - the dense pieces (README.md) but for how keys are loaded.
#pragma once

#include "pieces/fixed_lengths.cuh"
#include "pieces/fixed_order.cuh"
#include "pieces/plain_score.cuh"
#include "pieces/range_walk.cuh"
#include "pieces/rows_output.cuh"
#include "pieces/window_mask.cuh"

namespace attnforge {

/// C is the config of a family.
template <auto C>
struct DensePiecesWithoutKeys {
  using Order = FixedOrder;
  using Lengths = FixedLengths;
  using Walk = RangeWalk<C.left_bound != 0>;
  using Score = PlainScore;
  using Mask = WindowMask<C.left_bound != 0>;
  template <int kDtype, int kAlignment, bool kLse>
  using Output = RowsOutput<kDtype, kAlignment, kLse>;
};

}  // namespace attnforge
