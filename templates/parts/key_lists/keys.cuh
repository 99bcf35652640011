// keys.cuh - Keys gathered by cp.async: groups of neighbours that lie anywhere in the sequence.
#pragma once

#include "base_params.h"
#include "parts/key_lists/params.h"

namespace attnforge {

/// kGroups groups of kGroupKeys keys each. Members are as StridedKeys has them.
template <int kDtype, int kGroups, int kGroupKeys>
struct GatheredKeys {
  const char* first;  // of the sequence, this thread's part
  i64 row_bytes;
  int last_key;

  template <class QueryTile, class Walk, class Loader>
  ATTNFORGE_DEVICE GatheredKeys(const TensorRef& tensor, const QueryTile& tile, int kv_head,
                                const Walk&, const Loader& loader) {
    const int byte = loader.chunk * 16;
    row_bytes = bytes_of(kDtype, tensor.stride_row);
    last_key = tile.lengths.kv() - 1;
    const i64 offset = tile.lengths.batch() * tensor.stride_batch + kv_head * tensor.stride_head +
                       tile.lengths.kv_begin() * tensor.stride_row;
    first = static_cast<const char*>(tensor.data) + bytes_of(kDtype, offset) + byte;
  }

  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void seek(const Walk&, int, const Loader&) {}
  template <class Keys>
  ATTNFORGE_DEVICE void share(const Keys&) {}

  /// Rows after the last key are that key: no row sees them, and their numbers are some that
  /// attention has anyway.
  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void load(const Walk& walk, int place, const Loader& loader, u32 to, int) {
    const KeyGroup* const groups = walk.groups_at(place);
    const auto row_of = [this, groups, row = loader.row](int i) {
      const int in_tile = row + i * Loader::kRowsPerPass;
      const int number = int(groups[in_tile / kGroupKeys].number & ~KeyGroup::kEdge);
      const int key = min(number * kGroupKeys + in_tile % kGroupKeys, last_key);
      return first + key * row_bytes;
    };
    loader.template load<false>(to, row_of, 0);
  }
};

}  // namespace attnforge
