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

/// Values of the `dtype` fields of k and v in ggml's blocks of 32 numbers, each with its scale,
/// fp16, before it. To address them rows are of bytes, and so are strides.
enum BlockFormat : int { kQ8_0 = 7, kQ4_0 = 8 };
ATTNFORGE_CONSTEXPR bool is_blocks(int dtype) { return dtype == kQ8_0 || dtype == kQ4_0; }
/// The format of their numbers once they are loaded: then they have scales of groups of 32.
ATTNFORGE_CONSTEXPR int code_of(int dtype) {
  return dtype == kQ8_0 ? kInt8 : dtype == kQ4_0 ? kInt4 : dtype;
}
ATTNFORGE_CONSTEXPR bool is_integer(int dtype) {
  return code_of(dtype) == kInt8 || code_of(dtype) == kInt4;
}
template <class Config>
ATTNFORGE_CONSTEXPR bool has_blocks(const Config& c) {
  return is_blocks(c.dtype_k) || is_blocks(c.dtype_v);
}

/// Whether each row of k and v has scales of its own. With q of e4m3 those of q and k have, and v's
/// are of heads.
ATTNFORGE_CONSTEXPR bool scales_of_rows(const Shape& c) {
  return c.kv_scale >= kScaleToken || has_blocks(c);
}
ATTNFORGE_CONSTEXPR bool scales_of_v_rows(const Shape& c) {
  return scales_of_rows(c) && c.dtype != kE4m3;
}
/// Elements of a row of `dim` that share a scale, and scales of that row.
template <class Config>
ATTNFORGE_CONSTEXPR int scale_group(const Config& c, int dim) {
  if (has_blocks(c)) return 32;
  return c.kv_scale < kScaleGroup32 ? dim : 32 << (c.kv_scale - kScaleGroup32);
}
template <class Config>
ATTNFORGE_CONSTEXPR int row_scales(const Config& c, int dim) {
  return ceil_div(dim, scale_group(c, dim));
}
/// fp32 numbers of those scales: after each lies its zero point, where there are any.
template <class Config>
ATTNFORGE_CONSTEXPR int row_scale_floats(const Config& c, int dim) {
  return row_scales(c, dim) * (c.kv_zero ? 2 : 1);
}

}  // namespace attnforge
