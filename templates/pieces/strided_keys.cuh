// strided_keys.cuh - Keys of a tensor with a constant stride from key to key, for cp.async.
#pragma once

#include "base.cuh"
#include "params_fwd.h"

namespace attnforge {

/// Where a thread's part of a key's row lies. It copies from `byte` on of rows that begin at
/// `first_row` of a tile, kElementBytes an element.
template <int kElementBytes>
struct StridedKeys {
  const TensorRef& tensor;  // K or V
  const char* origin;       // of key 0 of the sequence, with first_row and byte added

  template <class QueryTile>
  ATTNFORGE_DEVICE StridedKeys(const TensorRef& keys, const QueryTile& tile, int first_row,
                               int byte)
      : tensor(keys) {
    const i64 at = tile.lengths.batch() * tensor.stride_batch +
                   tile.kv_head() * tensor.stride_head +
                   (tile.lengths.kv_begin() + first_row) * tensor.stride_row;
    origin = static_cast<const char*>(tensor.data) + at * kElementBytes + byte;
  }

  /// A function of an offset: where the row of key first_key + offset begins.
  ATTNFORGE_DEVICE auto rows(int first_key) const {
    const i64 row_bytes = tensor.stride_row * kElementBytes;
    const char* first = origin + u32(first_key) * row_bytes;  // unsigned: two multiplications less
    return [first, row_bytes](int offset) { return first + offset * row_bytes; };
  }
};

}  // namespace attnforge
