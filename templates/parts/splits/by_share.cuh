// by_share.cuh - Splits, Order and Walk of persistent kernels with one query tile a head: the key
// tiles of all sequences and heads lie in one row, and each block has as many of them as the
// others. So all end together, whatever the lengths are, and load without a break (Osama et al.,
// "Stream-K", 2023, for products of matrices).
#pragma once

#include "parts/splits/by_length.cuh"
#include "parts/splits/items.cuh"
#include "parts/splits/params.h"
#include "parts/splits/walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// Where a block is in its share.
template <class Splits>
struct Share {
  int sequence, head;  // a query head, or a K/V head when heads are packed
  int tiles;           // key tiles of this query tile
  int first;           // of them, the first of the share
  int left;            // key tiles of the share, from that one on

  ATTNFORGE_DEVICE bool more() const { return left > 0; }
  ATTNFORGE_DEVICE TileSlice slice() const { return {first, min(first + left, tiles)}; }
  template <class Params>
  ATTNFORGE_DEVICE TilePlace place(const Params& params) const {
    return {0, sequence * Splits::heads(params) + head};
  }
  /// To the next query tile that has keys.
  template <class Params>
  ATTNFORGE_DEVICE void advance(const Params& params) {
    left -= slice().last - first;
    first = 0;
    if (left <= 0 || ++head < Splits::heads(params)) return;
    head = 0;
    do {
      tiles = Splits::tiles_of(++sequence);
    } while (tiles == 0);
  }
};

/// Lengths and Walk are the pieces of the kernel, whose tiles have kBlockN keys and all rows of
/// kPackGqa heads. The argument has a PartialParams `partials`; the grid has partials.at_once
/// blocks. Query tile t, of all sequences and heads, in block b has the partial results number t +
/// b: from one to the next the tile or the block is another. Each has the rows of kPackGqa heads.
template <class Lengths, class Walk, int kBlockN, int kPackGqa>
struct SharedSplits {
  using Counted = LengthSplits<Lengths, Walk, kBlockN, kPackGqa>;

  template <class Params>
  ATTNFORGE_DEVICE static void count_all(const Params& params) {
    Counted::count_all(params);
  }
  template <class Params>
  ATTNFORGE_DEVICE static int heads(const Params& params) {
    return Counted::heads(params);
  }
  /// After count_all().
  ATTNFORGE_DEVICE static int tiles_of(int sequence) {
    return typename Counted::TilesOf()(sequence);
  }

  /// Key tiles of a head in the sequences before this one. All lanes of a warp call it.
  ATTNFORGE_DEVICE static int tiles_before(int sequence) {
    int sum = 0;
#pragma unroll 1
    for (int i = thread_index() % 32; i < sequence; i += 32) sum += tiles_of(i);
    return int(__reduce_add_sync(~0u, u32(sum)));
  }
  /// Blocks that have a share: with fewer key tiles than blocks, one each.
  template <class Params>
  ATTNFORGE_DEVICE static u32 blocks(const Params& params, i64 all) {
    return u32(all < params.partials.at_once ? all : params.partials.at_once);
  }
  /// Where the share of a block begins among all key tiles, of which there are some.
  template <class Params>
  ATTNFORGE_DEVICE static i64 begin_of(const Params& params, i64 all, int block) {
    const u32 those = blocks(params, all);
    return i64(u64(all) * min(u32(block), those) / those);
  }
  /// The block that has a key tile.
  template <class Params>
  ATTNFORGE_DEVICE static int block_of(const Params& params, i64 all, i64 tile) {
    return int((u64(tile + 1) * blocks(params, all) - 1) / u64(all));
  }

  /// Where this block begins, once that has been found.
  ATTNFORGE_DEVICE static Share<SharedSplits>& own() {
    __shared__ Share<SharedSplits> share;
    return share;
  }
  /// All threads of a block call this, before a barrier.
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    count_all(params);
    if (thread_index() >= 32) return;
    const int batch = params.fwd.batch;
    const i64 all = i64(tiles_before(batch)) * heads(params);
    const i64 begin = all == 0 ? 0 : begin_of(params, all, block_index());
    const i64 end = all == 0 ? 0 : begin_of(params, all, block_index() + 1);
    own() = share_from(params, begin, int(end - begin));
  }

  /// The partial results of row `row` of query head `head`. All lanes of a warp call this, after
  /// count_all().
  template <class Params>
  ATTNFORGE_DEVICE static SplitsOfRow of_row(const Params& params, int sequence, int head,
                                             int row) {
    const int batch = params.fwd.batch, before = tiles_before(min(sequence, batch));
    const i64 all = i64(tiles_before(batch)) * heads(params);
    const int tiles = sequence < batch ? tiles_of(sequence) : 0;
    if (tiles == 0) return {0, 0, 0};
    const i64 first = i64(before) * heads(params) + i64(head / kPackGqa) * tiles;
    const int block = block_of(params, all, first);
    return {first_of_row(params, sequence, head, row, block), rows_of_tile(params),
            block_of(params, all, first + tiles - 1) - block + 1};
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 place(const Params& params, int sequence, int head, int row) {
    return first_of_row(params, sequence, head, row, block_index());
  }
  /// Of a whole walk: shares cut it.
  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params&, int tiles) {
    return {0, tiles};
  }

 private:
  template <class Params>
  ATTNFORGE_DEVICE static int rows_of_tile(const Params& params) {
    return kPackGqa * params.partials.rows_of_head;
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 first_of_row(const Params& params, int sequence, int head, int row,
                                           int block) {
    const int tile = sequence * heads(params) + head / kPackGqa;
    return i64(tile + block) * rows_of_tile(params) + row * kPackGqa + head % kPackGqa;
  }
  /// That of `left` key tiles from `begin` on. All lanes of a warp call it.
  template <class Params>
  ATTNFORGE_DEVICE static Share<SharedSplits> share_from(const Params& params, i64 begin,
                                                         int left) {
    int before = 0;
#pragma unroll 1
    for (int sequences = 0; sequences < params.fwd.batch && left > 0; sequences += 32) {
      const int sequence = sequences + thread_index() % 32;
      const int tiles = sequence < params.fwd.batch ? tiles_of(sequence) : 0;
      const int first = before + sum_of_lanes_before(tiles);
      const i64 inside = begin - i64(first) * heads(params);
      const u32 found = lanes_where(inside >= 0 && inside < i64(tiles) * heads(params));
      if (found != 0) {
        const int lane = __ffs(int(found)) - 1;
        const int its_tiles = from_lane(tiles, lane), its_inside = from_lane(int(inside), lane);
        const int head = its_inside / its_tiles;
        return {sequences + lane, head, its_tiles, its_inside - head * its_tiles, left};
      }
      before = from_lane(first + tiles, 31);
    }
    return {0, 0, 0, 0, 0};
  }
};

/// The order of shares.
template <class Splits>
struct ShareOrder {
  static constexpr bool kMayRunOut = true, kMayBeEmpty = false, kFinds = true;

  ATTNFORGE_DEVICE static void begin() { start_next_grid(); }
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    Splits::find(params);
  }
  ATTNFORGE_DEVICE static Share<Splits> share() { return Splits::own(); }
};

/// The part of another Walk that a share has of it, which takes two words in shared memory.
template <class Walk>
struct ShareWalk : Walk {
  TileSlice slice{};

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static ShareWalk of_rows(const Params& params, const QueryTile& tile,
                                            int block_n, int row, int rows) {
    return {Walk::of_rows(params, tile, block_n, row, rows)};
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE ShareWalk of_part(const QueryTile& tile, int block_n, int row, int rows) const {
    return {Walk::of_part(tile, block_n, row, rows)};
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE ShareWalk seen_by(const QueryTile& tile, int block_n, int row, int rows) const {
    return {Walk::seen_by(tile, block_n, row, rows)};
  }

  ATTNFORGE_DEVICE void cut(const TileSlice& of_share) {
    slice = of_share;
    keep_slice(*this, slice);
  }
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to, slice.first);
    store_shared(to + 4, slice.last);
  }
  ATTNFORGE_DEVICE void load_slice(u32 from) {
    cut({from_lane_0(load_shared(from)), from_lane_0(load_shared(from + 4))});
  }
};

}  // namespace attnforge
