// dq_tile.cuh - where the elements of a tile of dq_sums lie. A family whose kernel adds them up in
// another order brings a struct like this one.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Which elements four neighbouring floats are, after the first. Columns are less than 8 from it,
/// or 8 more than that. Such quads make up a patch: 8 columns, or 16, of some rows.
struct DqQuad {
  int row[4], column[4];

  ATTNFORGE_CONSTEXPR int rows() const {
    int count = 0;
    for (int i = 0; i < 4; ++i) {
      bool seen = false;
      for (int before = 0; before < i; ++before) seen = seen || row[before] == row[i];
      count += !seen;
    }
    return count;
  }
  /// From one of its rows to the next.
  ATTNFORGE_CONSTEXPR int row_step() const {
    int last = 0;
    for (const int r : row) last = r > last ? r : last;
    return rows() == 1 ? 1 : last / (rows() - 1);
  }
  /// Groups of 8 columns in which a patch has elements: 1 or 2.
  ATTNFORGE_CONSTEXPR int halves() const {
    int halves = 1;
    for (const int c : column) halves = c >= 8 ? 2 : halves;
    return halves;
  }
  /// The columns of 8, as bits, at which a quad of a patch begins.
  ATTNFORGE_CONSTEXPR unsigned first_columns() const {
    unsigned first = 0, taken = 0;
    for (int c = 0; c < 8; ++c) {
      if (taken >> c & 1) continue;
      first |= 1u << c;
      for (const int further : column) taken |= 1u << (c + further % 8);
    }
    return first;
  }
};

/// Row after row. kColumns is head_dim or more.
template <int kTileRows, int kRowColumns>
struct RowMajorDqTile {
  static constexpr int kRows = kTileRows, kColumns = kRowColumns;
  static constexpr DqQuad kQuad{{0, 0, 0, 0}, {0, 1, 2, 3}};
  // So many patches, one under another, lie next to each other.
  static constexpr int kNeighbours = 1;

  /// In floats, from the first of the tile.
  ATTNFORGE_CONSTEXPR static int offset(int row, int column) { return row * kColumns + column; }
};

}  // namespace attnforge
