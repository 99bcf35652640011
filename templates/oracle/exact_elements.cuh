// exact_elements.cuh - elements of k and v as the oracles read them: those of 8 and 4 bits one by
// one, by the definition of their formats, times their scales and plus their zero points.
#pragma once

#include "low_bits.h"
#include "parts/low_bits/params.h"
#include "tile/elements.cuh"

namespace attnforge {

/// Element d of a row of kDtype.
template <int kDtype>
ATTNFORGE_DEVICE float exact_element(const char* row, int d) {
  if constexpr (!is_low_bit(kDtype)) {
    return load_1<kDtype>(row + d * element_bytes(kDtype));
  } else if constexpr (is_blocks(kDtype)) {
    const char* const block = row + d / 32 * (kDtype == kQ8_0 ? 34 : 18);
    const int byte = static_cast<unsigned char>(block[2 + (kDtype == kQ8_0 ? d % 32 : d % 16)]);
    const int number = kDtype == kQ8_0 ? (byte < 128 ? byte : byte - 256)
                                       : (d % 32 < 16 ? byte % 16 : byte / 16) - 8;
    return float(number) * load_1<kFp16>(block);
  } else {
    const int byte = static_cast<unsigned char>(row[kDtype == kInt4 ? d / 2 : d]);
    if constexpr (kDtype == kInt8) return float(byte < 128 ? byte : byte - 256);
    if constexpr (kDtype == kInt4) {
      const int bits = d % 2 == 0 ? byte % 16 : byte / 16;
      return float(bits < 8 ? bits : bits - 16);
    }
    if constexpr (kDtype == kE5m2) return to_float<kFp16>(u16(byte << 8));
    const int exponent = byte >> 3 & 15, mantissa = byte & 7;
    float x = exponent == 0 ? ldexpf(float(mantissa), -9)
                            : ldexpf(float(8 + mantissa), exponent - 10);
    if (exponent == 15 && mantissa == 7) x = __uint_as_float(0x7fffffffu);
    return byte & 128 ? -x : x;
  }
}

/// The value of element d of a row of K, or of V, where `number` is stored. `row` and `batch` are
/// those of the row in the tensor, `sequence` whose it is.
template <auto C, bool kOfV, class Params>
ATTNFORGE_DEVICE float exact_value(const Params& params, int sequence, i64 batch, i64 row, int head,
                                   int d, float number) {
  if constexpr (C.kv_scale == kNoScale || !is_low_bit(kOfV ? C.dtype_v : C.dtype_k)) {
    return number;
  } else {
    const TensorRef& scales = kOfV ? params.scales.v : params.scales.k;
    const float* const first = static_cast<const float*>(scales.data) + head * scales.stride_head;
    if constexpr (kOfV ? !scales_of_v_rows(C) : !scales_of_rows(C))
      return number * first[sequence * scales.stride_batch];
    const int group = scale_group(C, kOfV ? C.head_dim_v : C.head_dim);
    const float* const of_row = first + batch * scales.stride_batch + row * scales.stride_row;
    if constexpr (C.kv_zero) return number * of_row[d / group * 2] + of_row[d / group * 2 + 1];
    return number * of_row[d / group];
  }
}

/// By what the elements of query `query` of a head are multiplied, where q is of 8 bits. Its scale
/// is its own, or that of the head's keys.
template <auto C, class Params, class Lengths>
ATTNFORGE_DEVICE float exact_scale_of_query(const Params& params, const Lengths& lengths,
                                            int sequence, int head, int query) {
  if constexpr (C.kv_scale == kNoScale) return 1.0f;
  const TensorRef& scales = params.scales.q;
  const auto* const first = static_cast<const float*>(scales.data);
  if constexpr (scales_of_rows(C))
    return first[lengths.batch() * scales.stride_batch + head * scales.stride_head +
                 (lengths.q_begin() + query) * scales.stride_row];
  const int kv_head = head / (params.fwd.num_heads_q / params.fwd.num_heads_kv);
  return first[sequence * scales.stride_batch + kv_head * scales.stride_head];
}

}  // namespace attnforge
