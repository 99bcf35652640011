// strided_keys.cuh - Keys of a tensor with a constant stride from key to key, for cp.async.
#pragma once

#include "base_params.h"

namespace attnforge {

/// What a thread copies of one tile of keys after another, in the order of a walk. A loader
/// (tile/load_tile.cuh) says which rows of a tile, and where in them, are the thread's.
/// Elements are of kDtype. Moves from tile to tile: an address that is kept costs each an
/// addition, one that is computed from the key's number multiplications of 64 bits.
template <int kDtype>
struct StridedKeys {
  const TensorRef& tensor;  // K or V
  const char* at;           // the thread's first row of the tile that is loaded next

  template <class QueryTile, class Walk, class Loader>
  ATTNFORGE_DEVICE StridedKeys(const TensorRef& keys, const QueryTile& tile, int kv_head,
                               const Walk& walk, const Loader& loader)
      : tensor(keys) {
    const i64 first_row = i64(walk.tile_at(walk.first())) * Loader::kTileRows + loader.row;
    const int byte = loader.chunk * 16;
    const i64 offset = tile.lengths.batch() * tensor.stride_batch + kv_head * tensor.stride_head +
                       (tile.lengths.kv_begin() + first_row) * tensor.stride_row;
    at = static_cast<const char*>(tensor.data) + bytes_of(kDtype, offset) + byte;
  }

  /// Finds the tile at a place of the walk, of K: the next one there is. kFirst: of all.
  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void seek(const Walk&, int, const Loader&) {}
  /// Finds that of V, where K's was found.
  template <class Keys>
  ATTNFORGE_DEVICE void share(const Keys&) {}

  /// Begins to copy the tile that was found to `to`. Of the first, keys after the sequence's
  /// seqlen_kv are zeros; the others have none, and no seqlen_kv.
  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void load(const Walk& walk, int place, const Loader& loader, u32 to,
                             int seqlen_kv) {
    const i64 bytes_apart = bytes_of(kDtype, Loader::kRowsPerPass) * tensor.stride_row;
    loader.template load<kFirst>(
        to, [first = at, bytes_apart](int i) { return first + i * bytes_apart; },
        seqlen_kv - walk.tile_at(place) * Loader::kTileRows);
    at += bytes_of(kDtype, walk.step(place) * Loader::kTileRows) * tensor.stride_row;
  }
};

}  // namespace attnforge
