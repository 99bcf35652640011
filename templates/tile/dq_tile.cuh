// dq_tile.cuh - where the elements of a tile of dq_sums lie. A family whose kernel adds them up in
// another order brings a struct like this one.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Row after row. kColumns is head_dim or more.
template <int kTileRows, int kRowColumns>
struct RowMajorDqTile {
  static constexpr int kRows = kTileRows, kColumns = kRowColumns;
  // So many neighbouring columns, from a multiple of that on, lie next to each other: 1, 2 or 4.
  // 1 where a struct does not say it.
  static constexpr int kVector = 4;

  /// In floats, from the first of the tile.
  ATTNFORGE_HOST_DEVICE static constexpr int offset(int row, int column) {
    return row * kColumns + column;
  }
};

}  // namespace attnforge
