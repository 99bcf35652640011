// by_share.cuh - Splits, Order, Walk and Output of persistent kernels with one query tile a head:
// the key tiles of all sequences and heads lie in one row, and each block has as many of them as
// the others. So all end together, whatever the lengths are, and load without a break (Osama et
// al., "Stream-K", 2023, for products of matrices). Blocks are in teams, each with a row of its
// own, of every so many heads: what a team reads at a time lies together in memory.
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
    head += params.partials.team;
    if (left <= 0 || head < Splits::heads(params)) return;
    head -= Splits::heads(params);
    do {
      tiles = Splits::tiles_of(++sequence);
    } while (tiles == 0);
  }
};

/// Lengths and Walk are the pieces of the kernel, whose tiles have kBlockN keys and all rows of
/// kPackGqa heads. The argument has a PartialParams `partials`; the grid has partials.at_once
/// blocks, and heads are a multiple of partials.team. Query tile t, of all sequences and heads, in
/// a team whose first block is b has the partial results number t + b: from one to the next the
/// tile or the team is another. Each has the rows of kPackGqa heads.
/// kFinishes: the kernel stores the rows of a query tile itself where one block has all its keys;
/// only what shares cut has partial results then.
template <class Lengths, class Walk, int kBlockN, int kPackGqa, bool kFinishes = false>
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

  /// Heads whose key tiles lie in one row, of as many as a team has blocks.
  template <class Params>
  ATTNFORGE_DEVICE static int row_heads(const Params& params) {
    return quotient(heads(params), params.partials.team);
  }
  template <class Params>
  ATTNFORGE_DEVICE static int own_team(const Params& params) {
    return quotient(block_index(), params.partials.team);
  }

  /// Key tiles of a head in the sequences before this one. All lanes of a warp call it.
  ATTNFORGE_DEVICE static int tiles_before(int sequence) {
    int sum = 0;
#pragma unroll 1
    for (int i = thread_index() % 32; i < sequence; i += 32) sum += tiles_of(i);
    return int(__reduce_add_sync(~0u, u32(sum)));
  }
  /// Teams that have a share: with fewer key tiles than teams, one each.
  template <class Params>
  ATTNFORGE_DEVICE static u32 teams(const Params& params, i64 all) {
    const int most = quotient(params.partials.at_once, params.partials.team);
    return u32(all < most ? all : most);
  }
  /// Where the share of a team begins among all key tiles of a row, of which there are some.
  template <class Params>
  ATTNFORGE_DEVICE static i64 begin_of(const Params& params, i64 all, int team) {
    const u32 those = teams(params, all);
    return i64(u64(all) * min(u32(team), those) / those);
  }
  /// The team that has a key tile.
  template <class Params>
  ATTNFORGE_DEVICE static int team_of(const Params& params, i64 all, i64 tile) {
    return int((u64(tile + 1) * teams(params, all) - 1) / u64(all));
  }

  /// Where this block begins, once that has been found.
  ATTNFORGE_DEVICE static Share<SharedSplits>& own() {
    __shared__ Share<SharedSplits> share;
    return share;
  }
  /// The query tiles that its share begins and ends in the middle of, as number_of() has them; -1:
  /// at the end of another.
  ATTNFORGE_DEVICE static int* cut_tiles() {
    __shared__ int tiles[2];
    return tiles;
  }
  template <class Params>
  ATTNFORGE_DEVICE static int number_of(const Params& params, int sequence, int head) {
    return sequence * heads(params) + head;
  }
  /// Whether other blocks, too, have keys of a query tile of this block's.
  template <class Params>
  ATTNFORGE_DEVICE static bool is_cut(const Params& params, int sequence, int head) {
    const int tile = number_of(params, sequence, head);
    return tile == cut_tiles()[0] || tile == cut_tiles()[1];
  }

  /// All threads of a block call this, before a barrier.
  template <class Params>
  ATTNFORGE_DEVICE static void find(const Params& params) {
    count_all(params);
    if (thread_index() >= (kFinishes ? 64 : 32)) return;
    const int batch = params.fwd.batch;
    const i64 all = i64(tiles_before(batch)) * row_heads(params);
    const i64 begin = all == 0 ? 0 : begin_of(params, all, own_team(params));
    const i64 end = all == 0 ? 0 : begin_of(params, all, own_team(params) + 1);
    if (kFinishes && thread_index() >= 32) {
      cut_tiles()[1] = cut_by(params, share_from(params, end, end < all));
      return;
    }
    own() = share_from(params, begin, int(end - begin));
    if constexpr (kFinishes) cut_tiles()[0] = cut_by(params, own());
  }

  /// The partial results of row `row` of query head `head`. All lanes of a warp call this, after
  /// count_all().
  template <class Params>
  ATTNFORGE_DEVICE static SplitsOfRow of_row(const Params& params, int sequence, int head,
                                             int row) {
    const int batch = params.fwd.batch, before = tiles_before(min(sequence, batch));
    const i64 all = i64(tiles_before(batch)) * row_heads(params);
    const int tiles = sequence < batch ? tiles_of(sequence) : 0;
    if (tiles == 0) return {0, 0, 0};
    const i64 first = i64(before) * row_heads(params) +
                      i64(quotient(head / kPackGqa, params.partials.team)) * tiles;
    const int team = team_of(params, all, first);
    return {first_of_row(params, sequence, head, row, team),
            params.partials.team * rows_of_tile(params),
            team_of(params, all, first + tiles - 1) - team + 1};
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 place(const Params& params, int sequence, int head, int row) {
    return first_of_row(params, sequence, head, row, own_team(params));
  }
  /// Of a whole walk: shares cut it.
  template <class Params>
  ATTNFORGE_DEVICE static TileSlice slice(const Params&, int tiles) {
    return {0, tiles};
  }

 private:
  /// The query tile that a share which begins here cuts, or -1.
  template <class Params>
  ATTNFORGE_DEVICE static int cut_by(const Params& params, const Share<SharedSplits>& share) {
    return share.first > 0 ? number_of(params, share.sequence, share.head) : -1;
  }
  template <class Params>
  ATTNFORGE_DEVICE static int rows_of_tile(const Params& params) {
    return kPackGqa * params.partials.rows_of_head;
  }
  template <class Params>
  ATTNFORGE_DEVICE static i64 first_of_row(const Params& params, int sequence, int head, int row,
                                           int team) {
    const int tile = sequence * heads(params) + head / kPackGqa;
    return i64(tile + team * params.partials.team) * rows_of_tile(params) + row * kPackGqa +
           head % kPackGqa;
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
      const i64 inside = begin - i64(first) * row_heads(params);
      const u32 found = lanes_where(inside >= 0 && inside < i64(tiles) * row_heads(params));
      if (found != 0) {
        const int lane = __ffs(int(found)) - 1;
        const int its_tiles = from_lane(tiles, lane), its_inside = from_lane(int(inside), lane);
        const int team = params.partials.team, of_row = its_inside / its_tiles;
        return {sequences + lane, of_row * team + block_index() - own_team(params) * team,
                its_tiles, its_inside - of_row * its_tiles, left};
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

/// Output of rows whose query tile has all its keys in one share to Whole, of others to Partial.
template <class Whole, class Partial, class Splits>
struct ShareOutput {
  /// Stores as RowsOutput does.
  template <int kHalf, int kStored, class QueryTile, int kComputed>
  ATTNFORGE_DEVICE static void store(const QueryTile& tile, int row, int first_column,
                                     const float (&o)[kComputed][4], float inverse, float lse) {
    if (Splits::is_cut(tile.params, tile.batch, tile.head))
      Partial::template store<kHalf, kStored>(tile, row, first_column, o, inverse, lse);
    else
      Whole::template store<kHalf, kStored>(tile, row, first_column, o, inverse, lse);
  }
};

}  // namespace attnforge
