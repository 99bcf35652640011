// query_tiles.cuh - the query tiles of a block of fwd_wgmma_sm90a, as a consumer goes through them.
// Where it may, it computes the first scores of one while it stores the rows of the one before.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/consumer.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"

namespace attnforge {

template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aQueryTiles : FwdWgmmaSm90aConsumer<C, Pieces, Params> {
  using Consumer = FwdWgmmaSm90aConsumer<C, Pieces, Params>;
  using Warpgroup = typename Consumer::Warpgroup;
  using Work = typename Consumer::Work;
  using Part = typename Consumer::Part;

  using Consumer::wg;

  /// The tile after `tile` (before the first: -1), with its Q in shared memory; num_tiles() or
  /// more when there is none.
  ATTNFORGE_DEVICE int await_tile(int tile) const {
    if constexpr (!Work::kTells) {
      const int next = Work::following(wg.params, tile);
      if (next < Work::num_tiles(wg.params))
        mbarrier_wait(wg.smem.q_full(wg.q_ring.stage), wg.q_ring.parity);
      return next;
    } else {
      mbarrier_wait(wg.smem.q_full(wg.q_ring.stage), wg.q_ring.parity);
      // All lanes have the same number, and the compiler must know: descriptors then stay in
      // uniform registers.
      return from_lane_0(load_shared(wg.smem.tile(wg.q_ring.stage)));
    }
  }

  ATTNFORGE_DEVICE Work told_work() const {
    return Work::load(wg.params, wg.smem.tile(wg.q_ring.stage) + 4);
  }
  /// True if the next query tile is in shared memory and has keys. Its scores may then start while
  /// this tile is stored. All threads of the warpgroup get the same answer.
  ATTNFORGE_DEVICE bool may_begin(const Work& work, const Part& part, Work& next) const {
    const bool come = mbarrier_test(wg.smem.q_full(wg.q_ring.stage), wg.q_ring.parity);
    if (!named_barrier_all(4 + wg.warpgroup, 128, come)) return false;
    if (from_lane_0(load_shared(wg.smem.tile(wg.q_ring.stage))) == Work::kNoTile) return false;
    next = told_work();
    const Part its = Consumer::part_of(next);
    if (part.empty || its.empty) return false;
    return !Consumer::kLeavesOut ||
           (work.walk.after(part.walk) == 0 && next.walk.before(its.walk) == 0);
  }

  /// All query tiles, in that way.
  ATTNFORGE_DEVICE void attend_joined() {
    if (await_tile(-1) == Work::kNoTile) return;
    Work work = told_work();
    bool begun = false;  // the first scores are there
    for (;;) {
      const Part part = Consumer::part_of(work);
      wg.begin_rows(work.queries);
      if (!begun) {
        if constexpr (Consumer::kLeavesOut) Consumer::leave_out(work.walk.before(part.walk));
        if (!part.empty) Consumer::first_scores(work);
      }
      if (!part.empty) Consumer::attend_keys(work, part);
      wg.release_q();
      wg.q_ring.advance();
      Work next = work;
      begun = may_begin(work, part, next);
      if (begun) {
        Consumer::issue_last_outputs(work, part);
        Consumer::issue_first_scores();
        Consumer::tiles.note_first(wg, next.queries);
        wg.template end_outputs<1>();
        wg.store_rows(work.queries, part.row);
        wg.template end_scores<0>();
      } else {
        Consumer::end_query_tile(work, part);
        if (await_tile(-1) == Work::kNoTile) break;
        next = told_work();
      }
      work = next;
    }
  }

  ATTNFORGE_DEVICE void run() {
    // The first has the first turn.
    if (C.pingpong && wg.warpgroup == C.warpgroups - 1) wg.pass_turn();
    if constexpr (C.joins()) {
      attend_joined();
    } else if constexpr (Work::kTellsAll) {
      while (await_tile(-1) != Work::kNoTile) {
        const Work work = told_work();
        if constexpr (Consumer::KeyTiles::kSkips)
          Consumer::tiles.attend_seen_tiles(wg, work);
        else
          Consumer::attend_query_tile(work);
        wg.q_ring.advance();
      }
    } else {
      for (int tile = await_tile(-1); tile < Work::num_tiles(wg.params); tile = await_tile(tile)) {
        Consumer::attend_query_tile(Work(wg.params, tile));
        wg.q_ring.advance();
      }
    }
  }
};

}  // namespace attnforge
