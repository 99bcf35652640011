// low_bits.h - scales of k and v of 8 or 4 bits in a Shape.
#pragma once

#include "shape.h"

namespace attnforge {

/// Values of Shape::kv_scale. The same numbers as attnforge::KvScale.
inline constexpr int kNoScale = 0;
inline constexpr int kScaleTensor = 1;
inline constexpr int kScaleHead = 2;
inline constexpr int kScaleToken = 3;
inline constexpr int kScaleGroup32 = 4;

ATTNFORGE_CONSTEXPR bool is_integer(int dtype) { return dtype == kInt8 || dtype == kInt4; }

/// Whether each row of k and v has scales of its own.
ATTNFORGE_CONSTEXPR bool scales_of_rows(const Shape& c) { return c.kv_scale >= kScaleToken; }
/// Elements of a row of `dim` that share a scale, and scales of that row.
template <class Config>
ATTNFORGE_CONSTEXPR int scale_group(const Config& c, int dim) {
  return c.kv_scale < kScaleGroup32 ? dim : 32 << (c.kv_scale - kScaleGroup32);
}
template <class Config>
ATTNFORGE_CONSTEXPR int row_scales(const Config& c, int dim) {
  return ceil_div(dim, scale_group(c, dim));
}

}  // namespace attnforge
