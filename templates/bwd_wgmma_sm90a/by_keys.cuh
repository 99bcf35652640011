// by_keys.cuh - a block of 64 keys a warpgroup: each has dK and dV of its keys whole.
#pragma once

#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/dkv.cuh"
#include "bwd_wgmma_sm90a/warpgroup.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/tma.cuh"
#include "ptx/wgmma.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aByKeys {
  using Warpgroup = BwdWgmmaSm90aWarpgroup<C, Pieces, Params>;
  using Dkv = BwdWgmmaSm90aDkv<C, Warpgroup>;
  using Work = typename Warpgroup::Work;
  using Scores = typename Warpgroup::Scores;
  using Rounded = typename Warpgroup::Rounded;
  using DqParts = typename Warpgroup::DqParts;

  Warpgroup wg;
  float dk[C.head_dim / 8][4];
  float dv[C.head_dim_v / 8][4];

  // -- A query tile --

  /// P and dS of a tile; nothing is in flight before or after.
  ATTNFORGE_DEVICE void score_gradients(const Work& work, const QueryPlace& place, Rounded& p16,
                                        Rounded& ds16) {
    Scores s, dp, before;
    typename Warpgroup::Ahead ahead;
    wg.look_ahead(work, place, s, ahead);
    wg.await_q();
    wg.clear_queries(work, place.m);
    wg.issue_scores(s);
    wg.await_do();
    wg.issue_dp(dp);
    typename Warpgroup::Mask mask;
    wg.ask_mask(work, place, s, mask);
    wg.read_rows(ahead);
    wgmma_wait<1>();
    pin(s);
    wg.probabilities(work, place, s, p16, ahead, mask, before);
    wgmma_wait<0>();
    pin(dp);
    wg.gradients(work, place, s, dp, ds16, mask.masked(work, place));
    if constexpr (Warpgroup::key_sums_of_text()) wg.apply_slopes(work, place, before, dp, s, ds16);
    if constexpr (Warpgroup::has_key_sums()) wg.add_key_sums(work, place, dp, before);
  }

  /// dK and dV of a tile, then dQ, whose dS comes from all warpgroups.
  ATTNFORGE_DEVICE void attend(const Work& work, const QueryPlace& place) {
    Rounded p16, ds16;
    DqParts dq;
    score_gradients(work, place, p16, ds16);
    if constexpr (C.ds_stages == 1) wg.await_consumers();  // all have read the dS before
    wg.store_ds(ds16);
    wg.release_rows();
    fence_proxy_async();
    wg.issue_sums(dv, p16, wg.do_tile());
    wg.await_consumers();
    wg.issue_dq(dq, wg.ds_stage(wg.count));
    wg.issue_sums(dk, ds16, wg.q_tile());
    wg.store_dargs(work, place);
    wgmma_wait<1>();  // all but dK
    wg.pin_dq(dq);
    pin(dv);
    pin(p16);
    wg.release_do(wg.count);
    wg.store_dq(work, place, dq, wg.count);
    wgmma_wait<0>();
    pin(dk);
    pin(ds16);
    wg.release_q(wg.count);
    ++wg.count;
  }

  // late_dq: dQ of a tile is computed with dV and dK of the next, so that warpgroups need not be
  // at the same place: one has its exponentials under the products of the other. Where registers
  // are few, dV comes first: then ptxas puts dQ where dP was, and dS beside P where the scores
  // were.

  /// dK and dV of a tile, and dQ of the one before, if there is one. The first tile has a copy of
  /// the code, which takes a third longer to compile: a branch in the loop, even in the statement
  /// of a product, makes long sequences 2% to 5% slower.
  template <bool kFirst>
  ATTNFORGE_DEVICE void attend_late(const Work& work, const QueryPlace& place,
                                    const QueryPlace& before) {
    Rounded p16, ds16;
    DqParts dq;
    score_gradients(work, place, p16, ds16);
    const u32 stage = wg.ds_stage(wg.count);
    mbarrier_wait(wg.smem.ds_empty(stage), wg.ds_parity(wg.count) ^ 1);
    wg.store_ds(ds16);
    wg.release_rows();
    fence_proxy_async();
    __syncwarp();
    wg.release(wg.smem.ds_full(stage));
    if constexpr (!kFirst && C.late_dq == kDqFirst) issue_late_dq(dq);
    wg.issue_sums(dv, p16, wg.do_tile());
    if constexpr (!kFirst && C.late_dq == kDvFirst) issue_late_dq(dq);
    wg.issue_sums(dk, ds16, wg.q_tile());
    wg.store_dargs(work, place);
    const auto end_dv = [&] {
      pin(dv);
      pin(p16);
      wg.release_do(wg.count);
    };
    if constexpr (C.late_dq == kDvFirst) {
      wgmma_wait<1>();  // all but dK
      end_dv();
    } else if constexpr (!kFirst) {
      wgmma_wait<2>();  // dQ
    }
    if constexpr (!kFirst) finish_late_dq(work, before, dq);
    wgmma_wait<0>();
    if constexpr (C.late_dq == kDqFirst) end_dv();
    pin(dk);
    pin(ds16);
    wg.release_q(wg.count);
    ++wg.count;
  }
  ATTNFORGE_DEVICE void issue_late_dq(DqParts& dq) {
    const u32 stage = wg.ds_stage(wg.count - 1);
    mbarrier_wait(wg.smem.ds_full(stage), wg.ds_parity(wg.count - 1));
    wg.issue_dq(dq, stage);
  }
  ATTNFORGE_DEVICE void finish_late_dq(const Work& work, const QueryPlace& before, DqParts& dq) {
    wg.pin_dq(dq);
    wg.release(wg.smem.ds_empty(wg.ds_stage(wg.count - 1)));
    wg.store_dq(work, before, dq, wg.count - 1);
  }
  ATTNFORGE_DEVICE void finish_late(const Work& work, const QueryPlace& before) {
    DqParts dq;
    issue_late_dq(dq);
    wgmma_wait<0>();
    finish_late_dq(work, before, dq);
  }

  // -- A key tile --

  ATTNFORGE_DEVICE void run(const BwdWgmmaSm90aKeyTiles<C, Pieces, Params>& key_tiles) {
    key_tiles.template for_each<true>([&](const Work& work) { run(work); });
  }
  ATTNFORGE_DEVICE void run(const Work& work) {
    wg.clear_unseen(work);
    wg.await_zeros(work);
    fill(dk, 0.0f);
    fill(dv, 0.0f);
    if (work.tiles() > 0) {
      if constexpr (!C.persistent()) mbarrier_wait(wg.smem.kv_full(), 0);
      wg.clear_keys(work);
      if constexpr (!C.late_dq) {
        work.for_each([&](const QueryPlace& place) { attend(work, place); });
      } else {
        QueryPlace place = work.first(), before = place;
        attend_late<true>(work, place, before);
#pragma unroll 1
        for (int left = work.tiles() - 1; left > 0; --left) {
          before = place;
          work.advance(place);
          attend_late<false>(work, place, before);
        }
        finish_late(work, place);
      }
    }
    wg.count_added(work);
    // Rows go by way of V's memory, which all warps of the warpgroup have read: each told so with
    // dS.
    if constexpr (C.persistent()) wg.release(wg.smem.kv_empty());
    Dkv{wg}.template store_dk<C.v_chunks()>(work, wg.smem.v(), 0, dk);
    Dkv{wg}.template store_dv<C.v_chunks()>(work, wg.smem.v(), 0, dv);
  }
};

}  // namespace attnforge
