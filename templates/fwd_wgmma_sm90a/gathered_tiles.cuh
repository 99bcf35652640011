// gathered_tiles.cuh - what a warpgroup knows of a gathered key tile, and its way through a list of
// them. The entry of a kernel with lists names this file: others hold nothing of it.
#pragma once

#include "fwd_wgmma_sm90a/consumer.cuh"
#include "ptx/wgmma.cuh"

namespace attnforge {

/// Scores of a gathered tile whose mask's bits are in shared memory.
template <class Scores>
struct ScoresWithBits : Scores {
  u32 bits;  // of the query tile's first row
};

/// See the form for ranges (consumer.cuh).
template <FwdWgmmaSm90aConfig C, class Warpgroup>
struct FwdWgmmaSm90aKeyTiles<C, Warpgroup, true> {
  using Work = typename Warpgroup::Work;
  using Tile = typename Work::Tile;
  using Walk = typename Work::Walk;
  static constexpr int kGroupKeys = C.block_n / C.key_groups();
  using Groups = typename Walk::template Groups<C.block_n>;
  using Scores = typename Walk::template Scores<typename Warpgroup::ScoreArray, C.block_n>;

  /// Warpgroups that take turns take every tile, but for those at both ends of a list.
  static constexpr bool kLeavesOut = C.warpgroups > 1 && C.pingpong&& Walk::kInParts;
  static constexpr bool kSkips = C.warpgroups > 1 && !C.pingpong;

  Groups groups;  // of the tile whose scores are next
  int present;    // rows of the first tile before those after the sequence's last key

  ATTNFORGE_DEVICE void note_first(const Warpgroup& wg, const Tile& queries) {
    note(wg);
    present = present_rows(queries);
  }
  ATTNFORGE_DEVICE void note_next(const Warpgroup& wg) { note(wg); }
  ATTNFORGE_DEVICE int present_in_first(const Tile&, const Walk&) const { return present; }

  ATTNFORGE_DEVICE void attend(Warpgroup& wg, const Tile& queries, int row, const Walk&, int,
                               bool in_flight, bool begun) const {
    if constexpr (C.brings_bits()) {
      // Its buffer of K is given back once its bits are read.
      const int stage = (wg.k_ring.stage == 0 ? C.k_stages : wg.k_ring.stage) - 1;
      const ScoresWithBits<Scores> view{{wg.s, row, groups}, wg.smem.k(stage) + C.k_bytes()};
      const bool partial = view.partial(0);
      if (!partial) wg.release(wg.smem.k_empty(stage));
      wg.attend(queries, view, in_flight, begun, view.needs_mask());
      if (partial) wg.release(wg.smem.k_empty(stage));
    } else {
      const Scores view{wg.s, row, groups};
      wg.attend(queries, view, in_flight, begun, view.needs_mask());
    }
  }

  /// Of a list's tiles those that this warpgroup's rows see anything of.
  ATTNFORGE_DEVICE void attend_seen_tiles(Warpgroup& wg, const Work& work) {
    const int row = work.queries.first_row + wg.warpgroup * 64 + wg.lane_row();
    wg.begin_rows(work.queries);
    bool pending = false;  // probabilities of a tile, whose V is next in the ring
    bool begun = false;    // there are scores, for which Q is read
    present = C.block_n;
    const auto finish = [&] {
      wg.await_v();
      wg.clear_tail(present);
      wg.issue_outputs();
      wg.template end_outputs<0>();
    };
#pragma unroll 1
    for (int i = 0; i < work.walk.count(); ++i) {
      wg.await_k();
      if (!note(wg)) {
        if (pending) finish();
        pending = false;
        wg.release_k();
        wg.await_v();  // else two arrivals might be of one phase
        wg.release_v();
        continue;
      }
      if (!begun) wg.read_q(work.queries);
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
      wg.end_k();
      attend(wg, work.queries, row, work.walk, i, pending, i != 0);
      present = i == 0 ? present_rows(work.queries) : C.block_n;
      pending = true;
    }
    wg.release_q();
    if (pending) finish();
    wg.store_rows(work.queries, row);
  }

 private:
  /// The tile in K's ring. Whether this warpgroup's rows see anything of it.
  ATTNFORGE_DEVICE bool note(const Warpgroup& wg) {
    bool sees;
    groups = Groups::load(wg.smem.groups(wg.k_ring.stage), wg.warpgroup * 4 + wg.warp(), sees);
    return sees;
  }
  /// Rows of the tile before those after the sequence's last key: it lies in the last group that
  /// there is.
  ATTNFORGE_DEVICE int present_rows(const Tile& queries) const {
    int rows = C.block_n;
    if constexpr (Tile::Lengths::kAnythingAfter) {
#pragma unroll
      for (int g = 0; g < C.key_groups(); ++g) {
        const int keys = queries.lengths.kv() - groups.first_key(g);
        if (keys > 0 && keys < kGroupKeys) rows = g * kGroupKeys + keys;
      }
    }
    return rows;
  }
};

}  // namespace attnforge
