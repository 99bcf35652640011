// paged_keys.cuh - Keys of a cache in pages, for cp.async: a table says where each page lies.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_pages.h"
#include "params_tile_lists.h"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// kElementBytes an element, kPageSize rows a page. Argument is the kernel's: it has a PagesParams
/// `pages`. A tile of keys is a number of chunks that are in one page each; lane i of a warp knows
/// the page of chunk i, and is asked by the lanes that copy its rows.
template <int kElementBytes, int kPageSize, class Argument>
struct PagedKeys {
  static constexpr bool kPaged = true;

  const TensorRef& tensor;  // K or V
  const PagesParams& pages;
  const int* of_sequence;  // its row of the table
  const char* at;          // row 0 of page 0, this thread's part
  int end;                 // the sequence's keys
  u32 page;                // of this lane's chunk in the tile that was looked up last

  template <class QueryTile>
  ATTNFORGE_DEVICE PagedKeys(const TensorRef& keys, const QueryTile& tile, int kv_head, i64,
                             int byte)
      : tensor(keys),
        pages(reinterpret_cast<const Argument&>(tile.p).pages),
        of_sequence(pages.table + tile.batch * pages.stride_batch),
        at(static_cast<const char*>(tensor.data) + kv_head * tensor.stride_head * kElementBytes +
           byte),
        end(tile.lengths.kv()) {}

  /// Keys of a chunk of a tile of kTileKeys, and chunks.
  template <int kTileKeys>
  static constexpr int kChunkKeys = gcd(kPageSize, kTileKeys);
  template <int kTileKeys>
  static constexpr int kChunks = kTileKeys / kChunkKeys<kTileKeys>;

  /// Asks the table for the pages of tile n, ahead of rows(). Any n: there need be no such tile.
  /// kMayEnd: the sequence may end in it. What lies after the end is not asked for, a hole in the
  /// table and a number that no page has become some page: nothing faults.
  template <int kTileKeys, bool kMayEnd>
  ATTNFORGE_DEVICE void look_up(int n) {
    constexpr int kLast = kChunks<kTileKeys> - 1;
    const int chunk = kLast == 0 ? 0 : min(thread_index() % 32, kLast);
    const int key = n * kTileKeys + chunk * kChunkKeys<kTileKeys>;
    const bool present = kMayEnd ? u32(key) < u32(end) : key >= 0;
    const u32 entry = present ? u32(of_sequence[u32(key) / kPageSize]) : 0u;
    page = min(entry, u32(pages.num_pages) - 1);
  }

  /// A function of i: where its part of row `row` + i * kApart of tile n lies, which was looked up;
  /// `row` is below kApart. By all lanes of a warp. Of rows after the sequence's last, anywhere.
  template <int kTileKeys, int kApart>
  ATTNFORGE_DEVICE auto rows(int n, int row) const {
    constexpr int kKeys = kChunkKeys<kTileKeys>;
    const i64 row_bytes = tensor.stride_row * kElementBytes;
    i64 chunk_at = page * (tensor.stride_batch * kElementBytes);
    if constexpr (kKeys != kPageSize) {
      const int lane = kChunks<kTileKeys> == 1 ? 0 : thread_index() % 32;
      chunk_at += u32(n * kTileKeys + lane * kKeys) % kPageSize * row_bytes;
    }
    if constexpr (kChunks<kTileKeys> == 1) {
      return [first = at + chunk_at + row * row_bytes, row_bytes](int i) {
        return first + i * kApart * row_bytes;
      };
    } else {
      // A thread's rows have one place in their chunks, or places that the compiler knows from i.
      constexpr bool kSame = kApart % kKeys == 0, kKnown = kKeys % kApart == 0;
      const int place = kSame ? row % kKeys : kKnown ? row : 0;
      return [first = at + place * row_bytes, chunk_at, row_bytes, row](int i) {
        const int in_tile = (kKnown ? 0 : row) + i * kApart;
        const int chunk = in_tile / kKeys, more = kSame ? 0 : in_tile % kKeys;
        const u32 low = u32(from_lane(int(u32(chunk_at)), chunk));
        const u32 high = u32(from_lane(int(u32(chunk_at >> 32)), chunk));
        return first + i64(u64(high) << 32 | low) + more * row_bytes;
      };
    }
  }
};

}  // namespace attnforge
