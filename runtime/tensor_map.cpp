// tensor_map.cpp - TensorMapSpec and Tensor to CUtensorMap (CUDA Driver API, "Tensor Map Object
// Management").
#include "runtime/tensor_map.h"

#include <algorithm>
#include <cstring>

#include "generator/text/throw_error.h"
#include "runtime/driver.h"

namespace attnforge {
namespace {

CUtensorMapSwizzle swizzle(int bytes) {
  return bytes == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
         : bytes == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
                       : CU_TENSOR_MAP_SWIZZLE_32B;
}

/// Dimensions as the driver wants them: innermost first, no stride for the innermost.
struct Dimensions {
  cuuint32_t rank = 0;
  cuuint64_t extents[5] = {};
  cuuint64_t strides_bytes[4] = {};
  cuuint32_t box[5] = {};

  void add(std::int64_t extent, std::int64_t stride_bytes, int box_extent) {
    // The stride of a dimension of size 1 is never used and may be anything.
    constexpr std::int64_t kAnyStride = 16;
    if (rank > 0)
      strides_bytes[rank - 1] = static_cast<cuuint64_t>(extent > 1 ? stride_bytes : kAnyStride);
    extents[rank] = static_cast<cuuint64_t>(extent);
    box[rank] = static_cast<cuuint32_t>(box_extent);
    ++rank;
  }
};

/// `steps` strides in bytes. What TMA cannot take anyway becomes kNoStride, so that no product
/// overflows into a stride that it can.
std::int64_t stride_bytes(std::int64_t stride, int steps, int element_bits) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40, kNoStride = -1;
  if (stride < 0 || stride >= kMost) return kNoStride;
  return stride * steps * element_bits / 8;
}

Dimensions dimensions(const TensorMapSpec& spec, const TensorMapSizes& sizes,
                      const Tensor& tensor) {
  const int packed = std::max(spec.packed_heads, 1), bits = format_of(spec.dtype).bits;
  Dimensions result;
  result.add(spec.columns, 0, spec.box_columns);
  if (spec.packed_heads > 0)
    result.add(packed, stride_bytes(tensor.stride_head, 1, bits), spec.box_heads);
  result.add(sizes.rows, stride_bytes(tensor.stride_row, 1, bits), spec.box_rows);
  result.add(sizes.heads / packed, stride_bytes(tensor.stride_head, packed, bits), 1);
  result.add(sizes.batch, stride_bytes(tensor.stride_batch, 1, bits), 1);
  return result;
}

void encode(const TensorMapSpec& spec, const TensorMapSizes& sizes, const Tensor& tensor,
            std::byte* to) {
  const Dimensions d = dimensions(spec, sizes, tensor);
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  CUtensorMap map;  // aligned to 64; `to` need not be
  const CUresult result = driver().cuTensorMapEncodeTiled(
      &map, static_cast<CUtensorMapDataType>(format_of(spec.dtype).tensor_map_type), d.rank,
      tensor.data, d.extents, d.strides_bytes, d.box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      swizzle(spec.swizzle_bytes), CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) [[unlikely]] {
    throw_error(
        ErrorCode::kInvalidArgument,
        "TMA cannot address {} at {} with strides batch={} row={} head={} elements: pointer and "
        "strides must be multiples of 16 bytes, strides not negative and below 2^40 bytes. Make "
        "the plan for a problem with alignment=8: its kernels do without TMA and take any strides",
        spec.operand.name, tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head);
  }
  static_assert(sizeof(map) == kTensorMapBytes);
  std::memcpy(to, &map, sizeof(map));
}

}  // namespace

void encode_tensor_map(const TensorMapSpec& spec, const TensorMapSizes& sizes,
                       const Tensors& tensors, std::byte* to) {
  // What `in` finds is not written to.
  if (sizes.rows > 0)
    return encode(spec, sizes, spec.operand.in(const_cast<Tensors&>(tensors)), to);
  // No key, or no query: nothing is read, but the driver wants an address and sizes.
  encode(spec, {.rows = 1, .heads = 1, .batch = 1},
         tensors.q.data != nullptr ? tensors.q : tensors.k, to);
}

}  // namespace attnforge
