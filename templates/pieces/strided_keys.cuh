// strided_keys.cuh - Keys of a tensor with a constant stride from key to key, for cp.async.
#pragma once

#include "base.cuh"
#include "base_params.h"

namespace attnforge {

/// Where a thread's part of a tile of keys lies: from `byte` on in row `first_row` of the sequence,
/// and in those after it that are the thread's. kElementBytes an element. Moves from tile to tile:
/// an address that is kept costs each an addition, one that is computed from the key's number
/// multiplications of 64 bits.
template <int kElementBytes>
struct StridedKeys {
  static constexpr bool kPaged = false;

  const TensorRef& tensor;  // K or V
  const char* at;

  template <class QueryTile>
  ATTNFORGE_DEVICE StridedKeys(const TensorRef& keys, const QueryTile& tile, int kv_head,
                               i64 first_row, int byte)
      : tensor(keys) {
    const i64 offset = tile.lengths.batch() * tensor.stride_batch + kv_head * tensor.stride_head +
                       (tile.lengths.kv_begin() + first_row) * tensor.stride_row;
    at = static_cast<const char*>(tensor.data) + offset * kElementBytes + byte;
  }

  /// A function of i: where its part of row first_row + i * apart lies.
  ATTNFORGE_DEVICE auto rows(int apart) const {
    const i64 bytes_apart = apart * kElementBytes * tensor.stride_row;
    return [first = at, bytes_apart](int i) { return first + i * bytes_apart; };
  }

  /// To the tile that lies `keys` keys further.
  ATTNFORGE_DEVICE void move(int keys) { at += keys * kElementBytes * tensor.stride_row; }
};

}  // namespace attnforge
