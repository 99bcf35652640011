// half.h - elements of an array in host memory, one by one or in rows.
#pragma once

#include <algorithm>

#include "attnforge/element_format.h"

namespace attnforge {

inline double unit_roundoff(DType dtype) { return format_of(dtype).roundoff; }

/// `x` as the dtype would hold it.
inline float round_to(DType dtype, float x) { return format_of(dtype).round(x); }

inline float load_element(DType dtype, const void* array, std::int64_t index) {
  float x;
  format_of(dtype).load(array, index, 1, &x);
  return x;
}
inline void store_element(DType dtype, void* array, std::int64_t index, float x) {
  format_of(dtype).store(&x, 1, array, index);
}

/// `count` elements from `first` on.
inline void load_elements(DType dtype, const void* array, std::int64_t first, int count,
                          double* to) {
  const ElementFormat& format = format_of(dtype);
  float piece[64];
  for (int done = 0; done < count; done += 64) {
    const int length = std::min(count - done, 64);
    format.load(array, first + done, length, piece);
    std::copy_n(piece, length, to + done);
  }
}

}  // namespace attnforge
