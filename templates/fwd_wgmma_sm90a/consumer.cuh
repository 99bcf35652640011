// consumer.cuh - the role of fwd_wgmma_sm90a that computes: a warpgroup's way through the key tiles
// of a query tile. The scores of the next tile are in flight with the outputs of this one, and the
// softmax runs under that. Gathered tiles, and those that a warpgroup's rows see nothing of, are
// told apart here. How query tiles follow one another is in query_tiles.cuh.
#pragma once

#include "base.cuh"
#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/warpgroup.cuh"
#include "parts/key_lists/groups.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment_scores.cuh"

namespace attnforge {

template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aConsumer {
  using Warpgroup = FwdWgmmaSm90aWarpgroup<C, Pieces, Params>;
  using Work = typename Warpgroup::Work;
  using Tile = typename Work::Tile;
  using Walk = typename Work::Walk;
  using ScoreArray = float[Warpgroup::kScoreFragments][4];

  Warpgroup wg;

  // ---- Gathered tiles ----

  static constexpr int kGroupKeys = C.block_n / C.key_groups();
  using Groups = KeyGroups<C.key_groups(), kGroupKeys>;

  /// Of the tile in K's ring. `sees`: whether this warpgroup's rows see anything of it.
  ATTNFORGE_DEVICE Groups load_groups(bool& sees) const {
    return Groups::load(wg.smem.groups(wg.k_ring.stage), wg.warpgroup * 4 + wg.warp(), sees);
  }
  /// Rows of the tile before those after the sequence's last key: it lies in the last group that
  /// there is.
  ATTNFORGE_DEVICE static int present_rows(const Tile& queries, const Groups& groups) {
    int present = C.block_n;
    if constexpr (Tile::Lengths::kAnythingAfter) {
#pragma unroll
      for (int g = 0; g < C.key_groups(); ++g) {
        const int keys = queries.lengths.kv() - groups.first_key(g);
        if (keys > 0 && keys < kGroupKeys) present = g * kGroupKeys + keys;
      }
    }
    return present;
  }
  ATTNFORGE_DEVICE void attend_groups(const Tile& queries, int row, const Groups& groups,
                                      bool in_flight, bool begun) {
    const GroupedScores<ScoreArray, C.key_groups(), kGroupKeys> view{wg.s, row, groups};
    wg.attend(queries, view, in_flight, begun, view.needs_mask());
  }

  // ---- Tiles that are left out ----

  // A warpgroup leaves out the key tiles that none of its rows sees, but for its turns: under
  // windows, those at both ends of the block's walk.
  static constexpr bool kLeavesOut = !Work::kListed && C.warpgroups > 1 &&
                                     (C.right_bound || C.left_bound);

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
      wg.release_k();
      wg.await_v();
      wg.release_v();
    }
  }

  // ---- A query tile ----

  Groups groups;  // gathered: of the tile whose scores are next
  int present;    // rows of the first tile before those after the sequence's last key

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
    if constexpr (Work::kListed)
      wg.clear_tail(present);
    else
      wg.clear_tail(work.queries.lengths.kv() - part.walk.tile(0) * C.block_n);
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
    if constexpr (Work::kListed) {
      bool sees;
      groups = load_groups(sees);
      present = present_rows(work.queries, groups);
    }
    wgmma_wait<0>();
    pin(wg.s);
    wg.release_k();
  }
  /// All tiles of a walk but for the outputs of the last, whose probabilities are there.
  ATTNFORGE_DEVICE void attend_keys(const Work& work, const Part& part) {
#pragma unroll 1
    for (int i = 0;; ++i) {
      // 2. Probabilities, under the outputs of the tile before.
      if constexpr (Work::kListed) {
        attend_groups(work.queries, part.row, groups, i != 0, i != 0);
      } else {
        const FragmentScores<ScoreArray> view{wg.s, part.row, part.walk.tile(i) * C.block_n};
        wg.attend(work.queries, view, i != 0, i != 0, part.walk.masked(i));
      }
      if (i + 1 == part.walk.count()) break;
      // 3. The scores of the next tile with the outputs of this one.
      wg.await_k();
      wg.await_turn();
      wg.issue_scores();
      wg.await_v();
      if (i == 0) clear_first(work, part);
      wg.issue_outputs();
      wg.pass_turn();
      if constexpr (Work::kListed) {
        bool sees;
        groups = load_groups(sees);
      }
      wgmma_wait<1>();
      pin(wg.s);
      wg.release_k();
    }
  }
  /// 4. The outputs of the last tile.
  ATTNFORGE_DEVICE void issue_last_outputs(const Work& work, const Part& part) {
    wg.await_v();
    if (part.walk.count() == 1) clear_first(work, part);
    wg.issue_outputs();
  }
  ATTNFORGE_DEVICE void await_last_outputs() {
    wgmma_wait<0>();
    pin(wg.o);
    wg.release_v();
  }

  /// What follows the probabilities of the last tile.
  ATTNFORGE_DEVICE void end_query_tile(const Work& work, const Part& part) {
    if (!part.empty) {
      issue_last_outputs(work, part);
      await_last_outputs();
    }
    if constexpr (kLeavesOut) leave_out(work.walk.after(part.walk));
    wg.store_rows(work.queries, part.row);
  }

  /// All tiles of a walk, by every warpgroup; under windows, those that its rows see.
  ATTNFORGE_DEVICE void attend_query_tile(const Work& work) {
    const Part part = part_of(work);
    wg.begin_rows();
    if constexpr (kLeavesOut) leave_out(work.walk.before(part.walk));
    if (!part.empty) {
      wg.read_q();
      first_scores(work);
      if constexpr (C.q_in_regs) wg.release_q();
      attend_keys(work, part);
    }
    if (!C.q_in_regs || part.empty) wg.release_q();
    end_query_tile(work, part);
  }

  /// Of a list's tiles those that this warpgroup's rows see anything of. Warpgroups that take
  /// turns take every tile.
  ATTNFORGE_DEVICE void attend_seen_tiles(const Work& work) {
    const int row = work.queries.first_row + wg.warpgroup * 64 + wg.lane_row();
    wg.begin_rows();
    bool pending = false;  // probabilities of a tile, whose V is next in the ring
    bool begun = false;    // there are scores, for which Q is read
    present = C.block_n;
    const auto finish = [&] {
      wg.await_v();
      wg.clear_tail(present);
      wg.issue_outputs();
      await_last_outputs();
    };
#pragma unroll 1
    for (int i = 0; i < work.walk.count(); ++i) {
      wg.await_k();
      bool sees;
      groups = load_groups(sees);
      if (!sees) {
        if (pending) finish();
        pending = false;
        wg.release_k();
        wg.await_v();  // else two arrivals might be of one phase
        wg.release_v();
        continue;
      }
      if (!begun) wg.read_q();
      begun = true;
      wg.issue_scores();
      if (pending) {
        wg.await_v();
        wg.clear_tail(present);
        wg.issue_outputs();
        wgmma_wait<1>();
      } else {
        wgmma_wait<0>();
      }
      pin(wg.s);
      wg.release_k();
      attend_groups(work.queries, row, groups, pending, i != 0);
      present = i == 0 ? present_rows(work.queries, groups) : C.block_n;
      pending = true;
    }
    wg.release_q();
    if (pending) finish();
    wg.store_rows(work.queries, row);
  }
};

}  // namespace attnforge
