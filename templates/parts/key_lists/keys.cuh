// keys.cuh - Keys that are gathered by cp.async: a tile is several groups of neighbouring
// keys, which lie anywhere in the sequence.
#pragma once

#include "base.cuh"
#include "base_params.h"
#include "parts/key_lists/params.h"

namespace attnforge {

/// kGroups groups of kGroupKeys keys each. The rest is as StridedKeys has it.
template <int kElementBytes, int kGroups, int kGroupKeys>
struct GatheredKeys {
  static constexpr bool kPaged = false;

  const char* first;  // of the sequence, this thread's part
  i64 row_bytes;
  int last_key;

  template <class QueryTile>
  ATTNFORGE_DEVICE GatheredKeys(const TensorRef& tensor, const QueryTile& tile, int kv_head, i64,
                                int byte)
      : row_bytes(tensor.stride_row * kElementBytes), last_key(tile.lengths.kv() - 1) {
    const i64 offset = tile.lengths.batch() * tensor.stride_batch + kv_head * tensor.stride_head +
                       tile.lengths.kv_begin() * tensor.stride_row;
    first = static_cast<const char*>(tensor.data) + offset * kElementBytes + byte;
  }

  /// A function of i: where its part of row `row` + i * apart of a tile lies. Rows after the last
  /// key are that key: nobody sees them, and their numbers are some that attention has anyway.
  template <class Walk>
  ATTNFORGE_DEVICE auto rows(const Walk& walk, int place, int row, int apart) const {
    const KeyGroup* const groups = walk.groups_at(place);
    return [this, groups, row, apart](int i) {
      const int in_tile = row + i * apart;
      const int number = int(groups[in_tile / kGroupKeys].number & ~KeyGroup::kEdge);
      const int key = min(number * kGroupKeys + in_tile % kGroupKeys, last_key);
      return first + key * row_bytes;
    };
  }
};

}  // namespace attnforge
