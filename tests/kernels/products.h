// products.h - a thread's part of a product of tensor cores: its two rows times two columns. Words
// of the compiler's vectors, because tests are compiled with -O1.
#pragma once

#include <cstring>

namespace attnforge {

using FourFloats [[gnu::vector_size(16)]] = float;

/// Two rows: element k of each is there for both columns.
template <int kDepth>
struct RowsOfProduct {
  FourFloats rows[kDepth];

  explicit RowsOfProduct(const float (&of)[2][kDepth]) {
    for (int k = 0; k < kDepth; ++k) rows[k] = FourFloats{of[0][k], of[0][k], of[1][k], of[1][k]};
  }
  /// Adds each row's products with each column, element after element.
  void add(float (&d)[4], const float (&columns)[2][kDepth]) const {
    FourFloats sums;
    std::memcpy(&sums, d, sizeof(sums));
    for (int k = 0; k < kDepth; ++k)
      sums += rows[k] * FourFloats{columns[0][k], columns[1][k], columns[0][k], columns[1][k]};
    std::memcpy(d, &sums, sizeof(sums));
  }
};

}  // namespace attnforge
