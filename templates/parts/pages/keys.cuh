// keys.cuh - Keys of a cache in pages, for cp.async: a table says where each page lies.
#pragma once

#include "base_params.h"
#include "parts/pages/params.h"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Returns the address, but hides from the compiler how it came about: the compiler then keeps it,
/// where it else computes it again for every tile, by several 64-bit multiplications.
template <class T>
ATTNFORGE_DEVICE T* kept(T* address) {
  asm("" : "+l"(address));
  return address;
}

/// Members are as StridedKeys has them. Elements are of kDtype, kPageSize rows a page. The
/// argument has a PagesParams `pages`. A tile of keys is a number of chunks that are in one page
/// each; the lanes of a warp know the pages of the chunks of one tile after another, as many tiles
/// as they can have, and are asked by those that copy the rows. So the table is read a line at a
/// time, once in several tiles.
template <int kDtype, int kPageSize>
struct PagedKeys {
  const TensorRef& tensor;  // K or V
  const PagesParams& pages;
  const int* of_sequence;  // its row of the table
  const char* at;          // this thread's part of row 0 of page 0; later of its place in a chunk
  int end;                 // the sequence's keys
  u32 page, later_page;    // of this lane's chunk, among those of these tiles and of the next ones
  int first_lane;          // that has a chunk of the tile

  template <class QueryTile, class Walk, class Loader>
  ATTNFORGE_DEVICE PagedKeys(const TensorRef& keys, const QueryTile& tile, int kv_head, const Walk&,
                             const Loader& loader)
      : PagedKeys(keys, tile, kv_head, loader.chunk * 16) {
    start<Loader::kTileRows, Loader::kRowsPerPass>(loader.row);
  }
  /// Before start(). The thread copies from `byte` of a row on.
  template <class QueryTile>
  ATTNFORGE_DEVICE PagedKeys(const TensorRef& keys, const QueryTile& tile, int kv_head, int byte)
      : tensor(keys),
        pages(tile.params.pages),
        of_sequence(kept(pages.table + tile.batch * pages.stride_batch)),
        at(static_cast<const char*>(tensor.data) + bytes_of(kDtype, kv_head * tensor.stride_head) +
           byte),
        end(tile.lengths.kv()) {}

  /// Pages are looked up for several tiles of a range, whose tiles come one after another, and for
  /// one of a list.
  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void seek(const Walk& walk, int place, const Loader&) {
    const int n = walk.tile_at(place);
    if constexpr (Walk::kListed)
      visit<Loader::kTileRows>(n);
    else if constexpr (kFirst)
      begin<Loader::kTileRows>(n);
    else
      advance<Loader::kTileRows>(n);
  }
  /// To the tile that `keys` is at, where V lies in the pages that K does.
  template <class Keys>
  ATTNFORGE_DEVICE void share(const Keys& keys) {
    page = keys.page;
    first_lane = keys.first_lane;
  }
  /// Any tile of a list may be the sequence's last.
  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void load(const Walk& walk, int place, const Loader& loader, u32 to,
                             int seqlen_kv) const {
    const int n = walk.tile_at(place);
    loader.template load<kFirst || Walk::kListed>(
        to, rows<Loader::kTileRows, Loader::kRowsPerPass>(n, loader.row),
        (Walk::kListed ? end : seqlen_kv) - n * Loader::kTileRows);
  }

  /// Keys of a chunk of a tile of kTileKeys, and chunks.
  template <int kTileKeys>
  static constexpr int kChunkKeys = gcd(kPageSize, kTileKeys);
  template <int kTileKeys>
  static constexpr int kChunks = kTileKeys / kChunkKeys<kTileKeys>;
  // The rows of a thread that copies every kApart-th one. They have one place in their chunks; or,
  // as the chunks of a warp's rows do, places that the compiler knows.
  template <int kTileKeys, int kApart>
  static constexpr bool kSamePlace = kApart % kChunkKeys<kTileKeys> == 0;
  template <int kTileKeys, int kApart>
  static constexpr bool kKnownPlaces = kChunkKeys<kTileKeys> % kApart == 0;

  /// Before all else, of a thread whose first row of a tile is `row`, which is below kApart.
  template <int kTileKeys, int kApart>
  ATTNFORGE_DEVICE void start(int row) {
    constexpr bool kSame = kSamePlace<kTileKeys, kApart>, kKnown = kKnownPlaces<kTileKeys, kApart>;
    const int place = kChunks<kTileKeys> == 1 ? row
                      : kSame                 ? row % kChunkKeys<kTileKeys>
                      : kKnown                ? row
                                              : 0;
    at = kept(at + bytes_of(kDtype, place * tensor.stride_row));
  }

  /// Tiles of kTileKeys whose chunks the lanes know together.
  template <int kTileKeys>
  static constexpr int kTiles = 32 / kChunks<kTileKeys>;

  /// Asks the table for the pages of tile n, the first of a walk to the tiles before it, and ahead
  /// of some that come later. Of any n: there need be no such tile.
  template <int kTileKeys>
  ATTNFORGE_DEVICE void begin(int n) {
    page = look_up<kTileKeys, kTiles<kTileKeys>>(n);
    later_page = look_up<kTileKeys, kTiles<kTileKeys>>(n - kTiles<kTileKeys>);
    first_lane = 0;
  }
  /// From the tile after n to tile n.
  template <int kTileKeys>
  ATTNFORGE_DEVICE void advance(int n) {
    first_lane += kChunks<kTileKeys>;
    if (first_lane < kTiles<kTileKeys> * kChunks<kTileKeys>) return;
    page = later_page;
    later_page = look_up<kTileKeys, kTiles<kTileKeys>>(n - kTiles<kTileKeys>);
    first_lane = 0;
  }
  /// To a tile of which nothing tells which one comes next.
  template <int kTileKeys>
  ATTNFORGE_DEVICE void visit(int n) {
    page = look_up<kTileKeys, 1>(n);
    first_lane = 0;
  }

  /// A function of i: where its part of row `row` + i * kApart of tile n lies, which it is at;
  /// `row` is that of start(). By all lanes of a warp. Of rows after the sequence's last, anywhere.
  template <int kTileKeys, int kApart>
  ATTNFORGE_DEVICE auto rows(int n, int row) const {
    constexpr int kKeys = kChunkKeys<kTileKeys>, kNumChunks = kChunks<kTileKeys>;
    const i64 row_bytes = bytes_of(kDtype, tensor.stride_row),
              page_bytes = bytes_of(kDtype, tensor.stride_batch);
    // The address of a chunk by number: one shuffle, and a product that is added as it is made.
    const auto of_chunk = [first = at, lane = first_lane, its_page = page, page_bytes, row_bytes,
                           n](int chunk) {
      const char* address = first + u32(from_lane(int(its_page), lane + chunk)) * page_bytes;
      if constexpr (kKeys != kPageSize)
        address += u32(n * kTileKeys + chunk * kKeys) % kPageSize * row_bytes;
      return address;
    };
    if constexpr (kNumChunks == 1) {
      return [first = of_chunk(0), row_bytes](int i) { return first + i * kApart * row_bytes; };
    } else if constexpr (kKnownPlaces<kTileKeys, kApart>) {
      struct Chunks {
        const char* at[kNumChunks];
        i64 row_bytes;
        ATTNFORGE_DEVICE const char* operator()(int i) const {
          return at[i * kApart / kKeys] + i * kApart % kKeys * row_bytes;
        }
      } chunks;
#pragma unroll
      for (int chunk = 0; chunk < kNumChunks; ++chunk) chunks.at[chunk] = kept(of_chunk(chunk));
      chunks.row_bytes = row_bytes;
      return chunks;
    } else {
      return [of_chunk, row_bytes, row](int i) {
        const int in_tile = row + i * kApart,
                  more = kSamePlace<kTileKeys, kApart> ? 0 : in_tile % kKeys;
        return of_chunk(in_tile / kKeys) + more * row_bytes;
      };
    }
  }

 private:
  ATTNFORGE_DEVICE static int lane() { return int(u32(thread_index()) % 32); }
  /// The page of this lane's chunk, among those of tile n and of those before it, kLooked together.
  /// What lies outside of the sequence is not read, a hole in the table and a number that no
  /// page has become some page: nothing faults.
  template <int kTileKeys, int kLooked>
  ATTNFORGE_DEVICE u32 look_up(int n) const {
    constexpr int kNumChunks = kChunks<kTileKeys>;
    static_assert(kTiles<kTileKeys> > 0, "a lane knows a chunk of the tile");
    const int tile = lane() / kNumChunks, chunk = lane() % kNumChunks;
    const int key = (n - tile) * kTileKeys + chunk * kChunkKeys<kTileKeys>;
    const bool present = tile < kLooked && u32(key) < u32(end);
    const u32 entry = present ? u32(of_sequence[u32(key) / kPageSize]) : 0u;
    return min(entry, u32(pages.num_pages) - 1);
  }
};

}  // namespace attnforge
