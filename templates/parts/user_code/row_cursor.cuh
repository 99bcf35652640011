// row_cursor.cuh - the way of lanes down an array that a text reads by rows.
#pragma once

#include "parts/user_code/code.cuh"

namespace attnforge {

/// Goes down the queries of a head, kRows at a time, in an array that is read by rows, or in its
/// gradient. Of even rows an address takes one addition.
template <class Code, int kRows>
struct RowCursor {
  using Element = typename Code::RowElement;

  const Element* at;
  i64 step;

  template <class QueryTile>
  ATTNFORGE_DEVICE RowCursor(const QueryTile& queries, int row, int key)
      : at(place(queries, row, key)), step(0) {
    if constexpr (Code::kEvenRows)
      step = (place(queries, 1, key) - place(queries, 0, key)) * kRows;  // 0: there is one query
  }
  /// `row`: where it is now.
  template <class QueryTile>
  ATTNFORGE_DEVICE void advance(const QueryTile& queries, int row, int key) {
    if constexpr (Code::kEvenRows)
      at += step;
    else
      at = place(queries, row + kRows, key);
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE static const Element* place(const QueryTile& queries, int row, int key) {
    return UserRow<Code>(queries, row, key).place_in_row();
  }
};

}  // namespace attnforge
