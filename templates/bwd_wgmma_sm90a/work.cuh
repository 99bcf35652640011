// work.cuh - what a block of bwd_wgmma_sm90a does: a key tile, and the query tiles of its group's
// heads that see it; and how its roles come by one key tile after another. A persistent block's
// producer asks for each, and tells the others its number with K and V.
#pragma once

#include "backward/key_tile.cuh"
#include "backward/query_walk.cuh"
#include "backward/scratch.cuh"
#include "backward/turns.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aWork {
  using Tile = KeyTile<Params, typename Pieces::Lengths, true>;
  using Walk = typename Pieces::Queries;

  int tile;  // its number
  TilePlace place;
  Tile keys;
  Walk walk;
  int first_row;  // of the sequence, among a head's in the scratch
  int first_head, end_head;
  int m_step;  // 1, or -1: from the last query tile on

  /// The work of a key tile, by its number.
  ATTNFORGE_DEVICE BwdWgmmaSm90aWork(const Params& params, int number)
      : tile(number),
        place(place_tile(order_of(params), number)),
        keys(params, {place.m_block, kv_head(params)}, C.block_n()),
        walk(Walk::of_tile(params, keys, C.block_m, C.block_n())),
        first_row(scratch_row_in_head<C.block_m>(keys.lengths, keys.sequence)),
        first_head(keys.first_query_head()),
        end_head(first_head + keys.group()),
        m_step(from_end(params) ? -1 : 1) {
    if constexpr (C.splits_groups()) {
      first_head += share(params) * params.splits.heads;
      end_head = min(end_head, first_head + params.splits.heads);
    }
  }

  // ---- Key tiles of a head: of packed sequences as many as bwd_rows has listed ----

  ATTNFORGE_DEVICE static constexpr bool packed() { return is_packed<typename Pieces::Lengths>(); }
  ATTNFORGE_DEVICE static int tiles_of_head(const Params& params) {
    return key_tiles_of_head<typename Pieces::Lengths>(params);
  }
  ATTNFORGE_DEVICE static int all_tiles(const Params& params) {
    return tiles_of_head(params) * params.order.heads;
  }
  ATTNFORGE_DEVICE static decltype(auto) order_of(const Params& params) {
    if constexpr (packed()) {
      TileOrder order = params.order;
      order.m_blocks = tiles_of_head(params);
      return order;
    } else {
      return (params.order);
    }
  }

  /// Of all stored sequences' K/V heads, the one that `place` is of, and which share of its query
  /// heads.
  ATTNFORGE_DEVICE int kv_head(const Params& params) const {
    if constexpr (C.splits_groups()) return quotient(place.head, params.splits.count);
    return place.head;
  }
  ATTNFORGE_DEVICE int share(const Params& params) const {
    if constexpr (C.splits_groups()) return place.head - kv_head(params) * params.splits.count;
    return 0;
  }
  ATTNFORGE_DEVICE int tiles() const {
    if constexpr (Walk::kListed) return walk.count();
    if constexpr (C.splits_groups()) return walk.count() * (end_head - first_head);
    return walk.count() * keys.group();
  }
  // Adds in the order of key tiles (kDqInOrder) walk from the last query tile to the first: all
  // blocks of a head begin at the same tile, and a block that waits starts after the one it waits
  // for. Adds from the diagonal on begin at different query tiles and come to each in its order.
  // Adds in any order under a mask visit heads that share keys together, in one of two orders,
  // chosen for L2 hits. From the end: blocks that start together read the same tiles. From the
  // diagonal: so do blocks that start as others end.
  static constexpr bool kTogether = C.right_bound && !C.adds_in_order();
  ATTNFORGE_DEVICE bool from_end(const Params& params) const {
    if constexpr (!kTogether) return C.dq == kDqInOrder;
    const int group = quotient(place.head, params.order.heads_per_group);
    return params.from_end_every != 0 && group % params.from_end_every == 0;
  }
  ATTNFORGE_DEVICE int first_m() const { return m_step < 0 ? walk.end - 1 : walk.begin; }
  ATTNFORGE_DEVICE QueryPlace first() const {
    if constexpr (Walk::kListed) return walk.first();
    return {first_head, first_m()};
  }
  ATTNFORGE_DEVICE void advance(QueryPlace& place) const {
    if constexpr (Walk::kListed) {
      place = walk.after(place);
    } else if constexpr (kTogether) {
      const bool wraps = ++place.head == end_head;
      if (wraps) place.head = first_head, place.m += m_step;
    } else {
      const int next = place.m + m_step;
      const bool wraps = m_step < 0 ? next < walk.begin : next == walk.end;
      place.m = wraps ? first_m() : next;
      place.head += wraps;
    }
  }
  /// Whether advance() came to a query tile.
  ATTNFORGE_DEVICE bool has(const QueryPlace& place) const {
    return place.head < end_head && place.m >= walk.begin && place.m < walk.end;
  }
  /// Whether some row does not see all keys.
  ATTNFORGE_DEVICE bool masked(const QueryPlace& place) const {
    if constexpr (Walk::kListed)
      return walk.masked(place);
    else
      return walk.masked(place.m);
  }
  /// Calls visit(place) for each.
  template <class Visit>
  ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
    QueryPlace place = first();
#pragma unroll 1
    for (int left = tiles(); left > 0; --left) {
      visit(place);
      advance(place);
    }
  }
  /// Where rows of a query tile lie in the scratch arrays.
  ATTNFORGE_DEVICE i64 scratch_row(const BwdScratch& scratch, const QueryPlace& place) const {
    return scratch_row_of_head(keys.params.fwd, scratch, keys.lengths, place.head) + first_row +
           place.m * C.block_m;
  }
  ATTNFORGE_DEVICE float* dq_sums(const BwdScratch& scratch, const QueryPlace& place) const {
    return scratch.dq_sums + scratch_row(scratch, place) * C.dq_columns();
  }
  /// Waits until the head's sums are zeros, or hold what blocks of it added. Where there is nothing
  /// to add, too: a block that then counts itself says that the sums can be read.
  ATTNFORGE_DEVICE void await_zeros(const Params& params) const {
    if constexpr (!C.zeros_ahead) return;
    const int before = place.head - params.zeros.lag;
    if (before >= 0) await_turn(params.zeros.cleared + before, tiles_of_head(params));
    fence_proxy_async_global();
  }
  /// Among the query tiles of all heads of all sequences.
  ATTNFORGE_DEVICE i64 tile_number(const BwdScratch& scratch, const QueryPlace& place) const {
    return scratch_row(scratch, place) / C.block_m;
  }
  /// How many key tiles that see a query tile come before this one.
  ATTNFORGE_DEVICE int turn(const QueryPlace& place) const {
    const int own = keys.first_key / C.block_n();
    const int position = place.m * C.block_m + keys.lengths.kv() - keys.lengths.q();
    if constexpr (C.dq == kDqFromDiagonal) {
      const int last_key = position + C.block_m - 1 + keys.params.fwd.window_right;
      return min(last_key, keys.lengths.kv() - 1) / C.block_n() - own;
    }
    if constexpr (!C.left_bound) return own;
    return own - max(position - keys.params.fwd.window_left, 0) / C.block_n();
  }
};

/// One tile: its work is found before the block's roles part, in one copy of that code.
template <BwdWgmmaSm90aConfig C, class Pieces, class Params, bool kPersistent = C.persistent()>
struct BwdWgmmaSm90aKeyTiles {
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;

  const Work work;

  ATTNFORGE_DEVICE BwdWgmmaSm90aKeyTiles(const Params& params, const BwdWgmmaSm90aShared<C>&)
      : work(params, block_index()) {}

  template <bool kWarps, class Visit>
  ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
    visit(work);
  }
};

template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aKeyTiles<C, Pieces, Params, true> {
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;

  const Params& params;
  const BwdWgmmaSm90aShared<C> smem;

  ATTNFORGE_DEVICE BwdWgmmaSm90aKeyTiles(const Params& kernel_params,
                                         const BwdWgmmaSm90aShared<C>& shared)
      : params(kernel_params), smem(shared) {}

  /// Calls visit(work) for each, by lane 0 of a warp, or with kWarps by all its lanes. A thread
  /// that has read the number, and in shared memory what it wants of K and V, arrives at
  /// kv_empty().
  template <bool kWarps, class Visit>
  ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      mbarrier_wait(smem.kv_full(), number % 2);
      const int told = load_shared(smem.told());
      const int tile = kWarps ? from_lane_0(told) : from_lone_lane_0(told);
      if (tile >= Work::all_tiles(params)) return;
      visit(Work(params, tile));
    }
  }
};

}  // namespace attnforge
