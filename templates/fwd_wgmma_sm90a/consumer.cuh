// consumer.cuh - the role of fwd_wgmma_sm90a that computes: a warpgroup's way through the key tiles
// of a query tile (gathered_tiles.cuh: of lists). The scores of the next tile are in flight with
// the outputs of this one, and the softmax runs under that. Tiles at the ends of a walk that a
// warpgroup's rows see nothing of are left out here.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/warpgroup.cuh"
#include "ptx/wgmma.cuh"

namespace attnforge {

/// What a warpgroup knows of the key tile whose scores are next, besides its index in the walk.
template <FwdWgmmaSm90aConfig C, class Warpgroup, bool kListed = Warpgroup::Work::kListed>
struct FwdWgmmaSm90aKeyTiles;

/// Of tiles of neighbouring keys: nothing.
template <FwdWgmmaSm90aConfig C, class Warpgroup>
struct FwdWgmmaSm90aKeyTiles<C, Warpgroup, false> {
  using Work = typename Warpgroup::Work;
  using Tile = typename Work::Tile;
  using Walk = typename Work::Walk;

  /// A warpgroup leaves out the key tiles that none of its rows sees, but for its turns: under
  /// windows, those at both ends of the block's walk.
  static constexpr bool kLeavesOut = C.warpgroups > 1 && (C.right_bound || C.left_bound);
  /// Whether attend_seen_tiles() replaces attend_query_tile().
  static constexpr bool kSkips = false;

  /// The tile in K's ring is the first of the walk; the next one.
  ATTNFORGE_DEVICE static void note_first(const Warpgroup&, const Tile&) {}
  ATTNFORGE_DEVICE static void note_next(const Warpgroup&) {}
  /// Rows of the first tile before those after the sequence's last key, or more.
  ATTNFORGE_DEVICE static int present_in_first(const Tile& queries, const Walk& walk) {
    return queries.lengths.kv() - walk.tile(0) * C.block_n;
  }
  /// Scores of the i-th tile of the walk to probabilities.
  ATTNFORGE_DEVICE static void attend(Warpgroup& wg, const Tile& queries, int row, const Walk& walk,
                                      int i, bool in_flight, bool begun) {
    const typename Warpgroup::View view{wg.s, row, walk.tile(i) * C.block_n};
    wg.attend(queries, view, in_flight, begun, walk.masked(i));
  }
};

template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aConsumer {
  using Warpgroup = FwdWgmmaSm90aWarpgroup<C, Pieces, Params>;
  using Work = typename Warpgroup::Work;
  using Tile = typename Work::Tile;
  using Walk = typename Work::Walk;
  using KeyTiles = FwdWgmmaSm90aKeyTiles<C, Warpgroup>;
  static constexpr bool kLeavesOut = KeyTiles::kLeavesOut;

  Warpgroup wg;
  KeyTiles tiles;

  // ---- Tiles that are left out ----

  /// The tiles of a walk that this warpgroup attends to.
  ATTNFORGE_DEVICE Walk its_walk(const Work& work, int first_row) const {
    if constexpr (kLeavesOut) return work.walk.seen_by(work.queries, C.block_n, first_row, 64);
    return work.walk.of_part(work.queries, C.block_n, first_row, 64);
  }
  ATTNFORGE_DEVICE void leave_out(int tiles) {
#pragma unroll 1
    for (; tiles > 0; --tiles) {
      wg.await_k();  // and V: else two arrivals might be of one phase
      wg.await_turn();
      wg.pass_turn();
      if constexpr (C.has_key_scales()) wg.await_key_scales(wg);
      wg.release_k();
      wg.await_v();
      wg.release_v();
      if constexpr (C.may_tile_rows()) wg.ahead.skip(wg.smem.base);
    }
  }

  // ---- A query tile ----

  /// This warpgroup's rows of a query tile, and the tiles of keys that it attends to.
  struct Part {
    int row;
    Walk walk;
    bool empty;
  };
  ATTNFORGE_DEVICE Part part_of(const Work& work) const {
    const int first_row = work.queries.first_row + wg.warpgroup * 64;
    const Walk walk = its_walk(work, first_row);
    return {first_row + wg.lane_row(), walk, kLeavesOut ? walk.count() == 0 : work.empty()};
  }
  ATTNFORGE_DEVICE void clear_first(const Work& work, const Part& part) const {
    wg.clear_tail(tiles.present_in_first(work.queries, part.walk));
  }

  /// 1. The scores of the first tile.
  ATTNFORGE_DEVICE void issue_first_scores() {
    wg.await_k();
    wg.await_turn();
    wg.issue_scores();
    wg.pass_turn();
  }
  ATTNFORGE_DEVICE void first_scores(const Work& work) {
    issue_first_scores();
    tiles.note_first(wg, work.queries);
    wg.template end_scores<0>();
  }
  /// All tiles of a walk but for the outputs of the last, whose probabilities are there.
  ATTNFORGE_DEVICE void attend_keys(const Work& work, const Part& part) {
#pragma unroll 1
    for (int i = 0;; ++i) {
      // 2. Probabilities, under the outputs of the tile before.
      tiles.attend(wg, work.queries, part.row, part.walk, i, i != 0, i != 0);
      if (i + 1 == part.walk.count()) break;
      // 3. The scores of the next tile with the outputs of this one.
      wg.await_k();
      wg.await_turn();
      wg.issue_scores();
      wg.await_v();
      if (i == 0) clear_first(work, part);
      wg.issue_outputs();
      wg.pass_turn();
      tiles.note_next(wg);
      wg.template end_scores<1>();
    }
  }
  /// 4. The outputs of the last tile.
  ATTNFORGE_DEVICE void issue_last_outputs(const Work& work, const Part& part) {
    wg.await_v();
    if (part.walk.count() == 1) clear_first(work, part);
    wg.issue_outputs();
  }

  /// What follows the probabilities of the last tile.
  ATTNFORGE_DEVICE void end_query_tile(const Work& work, const Part& part) {
    if (!part.empty) {
      issue_last_outputs(work, part);
      wg.template end_outputs<0>();
    }
    if constexpr (kLeavesOut) leave_out(work.walk.after(part.walk));
    wg.store_rows(work.queries, part.row);
  }

  /// All tiles of a walk, by every warpgroup; under windows, those that its rows see.
  ATTNFORGE_DEVICE void attend_query_tile(const Work& work) {
    const Part part = part_of(work);
    wg.begin_rows(work.queries);
    if constexpr (kLeavesOut) leave_out(work.walk.before(part.walk));
    if (!part.empty) {
      wg.read_q(work.queries);
      first_scores(work);
      if constexpr (C.q_in_regs) wg.release_q();
      attend_keys(work, part);
    }
    if (!C.q_in_regs || part.empty) wg.release_q();
    end_query_tile(work, part);
  }
};

}  // namespace attnforge
