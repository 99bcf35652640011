// by_columns.cuh - a block of 64 keys for two warpgroups, where a warpgroup has no room for dK and
// dV of whole rows: each has half of their columns. The first computes scores and probabilities,
// the second dP and dS, and they hand each other P and dS through shared memory.
#pragma once

#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/dkv.cuh"
#include "bwd_wgmma_sm90a/float_parts.cuh"
#include "bwd_wgmma_sm90a/warpgroup.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// kIndex: of the warpgroup.
template <BwdWgmmaSm90aConfig C, class Pieces, class Params, int kIndex>
struct BwdWgmmaSm90aByColumns {
  using Warpgroup = BwdWgmmaSm90aWarpgroup<C, Pieces, Params>;
  using Dkv = BwdWgmmaSm90aDkv<C, Warpgroup>;
  using Work = typename Warpgroup::Work;
  using Scores = typename Warpgroup::Scores;
  using Rounded = typename Warpgroup::Rounded;
  using DqParts = typename Warpgroup::DqParts;

  // One has the greater part of dK, the other that of dV.
  static constexpr ColumnRange kDkColumns = C.half_of_columns(C.head_dim, kIndex);
  static constexpr ColumnRange kDvColumns = C.half_of_columns(C.head_dim_v, 1 - kIndex);
  // What dP - delta is multiplied with is P itself, or another array beside it.
  static constexpr bool kOne = Pieces::Slope::kOne;
  static_assert(kOne || C.changes_scores(), "there is no second array, for P itself");

  // Named barriers: P is written, dS is written. What waits for one has read all before it.
  static constexpr int kProbabilities = 2, kGradients = 3;

  Warpgroup wg;
  float dk[kDkColumns.fragments()][4];
  float dv[kDvColumns.fragments()][4];

  // -- P and dS, from one warpgroup to the other --

  ATTNFORGE_DEVICE u32 own_words(int array) const {
    return wg.smem.p(array) + thread_index() % 128 * 16;
  }
  ATTNFORGE_DEVICE void store_words(const Rounded& words, int array) const {
    unrolled<C.block_m / 16>(
        [&](int j) { store_shared_16(own_words(array) + j * 2048, words[j]); });
  }
  ATTNFORGE_DEVICE void load_words(Rounded& words, int array) const {
    unrolled<C.block_m / 16>([&](int j) { load_shared_16(words[j], own_words(array) + j * 2048); });
  }
  /// What dP - delta is multiplied with, in fp32 to 2^-16 of it: dS is to be rounded once.
  ATTNFORGE_DEVICE u32 own_bytes() const { return wg.smem.below() + thread_index() % 128 * 8; }
  ATTNFORGE_DEVICE void store_factors(const Scores& s) const {
#pragma unroll
    for (int j = 0; j < C.block_m / 8; j += 2) {
      u32 words[4];
      unrolled<4>([&](int i) {
        words[i] = upper_halves(s[j + i / 2][i % 2 * 2], s[j + i / 2][i % 2 * 2 + 1]);
      });
      store_shared_16(own_words(0) + j / 2 * 2048, words);
      store_shared_8(own_bytes() + j / 2 * 1024, bytes_below(s[j]), bytes_below(s[j + 1]));
    }
  }
  ATTNFORGE_DEVICE void load_factors(Scores& s) const {
#pragma unroll
    for (int j = 0; j < C.block_m / 8; j += 2) {
      u32 words[4], below[2];
      load_shared_16(words, own_words(0) + j / 2 * 2048);
      load_shared_8(below[0], below[1], own_bytes() + j / 2 * 1024);
      unrolled<8>(
          [&](int i) { s[j + i / 4][i % 4] = joined_float(words[i / 2], below[i / 4], i % 4); });
    }
  }
  ATTNFORGE_DEVICE static void round(const Scores& s, Rounded& words) {
    unrolled<C.block_m / 8, 2>([&](int j, int r) {
      words[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(s[j][2 * r], s[j][2 * r + 1]);
    });
  }

  // -- A query tile --

  /// Scores, or dP, which the other warpgroup does not compute. Without a tile (`has` is false)
  /// they are of whatever lies in its place, and nobody reads them: a product in a branch would
  /// make ptxas wait for each, and a copy of the code without it takes a third longer to compile.
  ATTNFORGE_DEVICE void issue_own(const Work& work, bool has, int m, Scores& own) {
    if (has) {
      constexpr bool kBoth = Work::Tile::Lengths::kAnythingAfter;
      if constexpr (kIndex == 0 || kBoth) wg.await_q();
      if constexpr (kIndex == 1 || kBoth) wg.await_do();
      wg.clear_queries(work, m);
    }
    if constexpr (kIndex == 0)
      wg.issue_scores(own);
    else
      wg.issue_dp(own);
  }
  /// P, and dS in shared memory and registers. dV of the tile is in flight after it.
  ATTNFORGE_DEVICE void gradients(const Work& work, const QueryPlace& place, Scores& own,
                                  Rounded& p16, Rounded& ds16) {
    if constexpr (kIndex == 0) {
      typename Warpgroup::Ahead ahead;
      wg.look_ahead(work, place, own, ahead);
      typename Warpgroup::Mask mask;
      wg.ask_mask(work, place, own, mask);
      wg.read_rows(ahead);
      Scores unread;
      wg.probabilities(work, place, own, p16, ahead, mask, unread);
      store_factors(own);
      wg.release_rows();
      if constexpr (!kOne) store_words(p16, 1);
      named_barrier_arrive(kProbabilities, wg.kConsumers);
      wg.await_do();
      issue_dv(p16);
      named_barrier_wait(kGradients, wg.kConsumers);
      wg.load_ds(ds16);
    } else {
      Scores s;
      named_barrier_wait(kProbabilities, wg.kConsumers);
      load_factors(s);
      if constexpr (kOne)
        round(s, p16);
      else
        load_words(p16, 1);
      issue_dv(p16);
      wg.gradients(work, place, s, own, ds16, work.masked(place));
      wg.store_ds(ds16);
      fence_proxy_async();
      named_barrier_arrive(kGradients, wg.kConsumers);
      wg.store_dargs(work, place);
      wg.await_q();
    }
  }
  ATTNFORGE_DEVICE void issue_dv(const Rounded& p16) {
    if constexpr (kDvColumns.count > 0)
      wg.issue_sums(dv, p16,
                    wg.do_tile() + kDvColumns.begin / C.chunk_columns() * C.row_chunk_bytes());
  }
  ATTNFORGE_DEVICE void issue_dk(const Rounded& ds16) {
    if constexpr (kDkColumns.count > 0)
      wg.issue_sums(dk, ds16,
                    wg.q_tile() + kDkColumns.begin / C.chunk_columns() * C.row_chunk_bytes());
  }

  /// What dS gives, and `own` of the next tile, if there is one: in two rounds of dQ there are
  /// registers for it beside the second.
  ATTNFORGE_DEVICE void attend(const Work& work, const QueryPlace& place, bool has_next,
                               const QueryPlace& next, Scores& own) {
    constexpr int kDk = kDkColumns.count > 0;
    Rounded p16, ds16;
    DqParts dq;
    gradients(work, place, own, p16, ds16);
    wgmma_wait<0>();  // dV: with dQ beside it, registers would not do
    pin(dv);
    pin(p16);
    wg.release_do(wg.count);
    wg.template issue_dq<0>(dq, 0);
    issue_dk(ds16);
    wgmma_wait<kDk>();
    wg.pin_dq(dq);
    wg.template store_dq<0>(work, place, dq, wg.count);
    if constexpr (C.dq_rounds == 2) wg.template issue_dq<1>(dq, 0);
    ++wg.count;
    issue_own(work, has_next, next.m, own);
    if constexpr (C.dq_rounds == 2) {
      wgmma_wait<1>();
      wg.pin_dq(dq);
      wg.template store_dq<1>(work, place, dq, wg.count - 1);
    }
    wgmma_wait<0>();
    pin(dk);
    pin(ds16);
    pin(own);
    wg.release_q(wg.count - 1);
  }

  ATTNFORGE_DEVICE void run(const BwdWgmmaSm90aKeyTiles<C, Pieces, Params>& key_tiles) {
    const Work& work = key_tiles.work;
    wg.clear_unseen(work);
    wg.await_zeros(work);
    fill(dk, 0.0f);
    fill(dv, 0.0f);
    if (work.tiles() > 0) {
      mbarrier_wait(wg.smem.kv_full(), 0);
      wg.clear_keys(work);
      QueryPlace place = work.first(), next = place;
      Scores own;
      issue_own(work, true, place.m, own);
      wgmma_wait<0>();
      pin(own);
#pragma unroll 1
      for (int left = work.tiles(); left > 0; --left) {
        work.advance(next);
        attend(work, place, left > 1, next, own);
        place = next;
      }
    }
    wg.count_added(work);
    // Rows go by way of K's memory, and of V's, which the other warpgroup reads, too.
    if constexpr (Dkv::kStaged) wg.await_consumers();
    constexpr int kChunks = kIndex == 0 ? C.qk_chunks() : C.v_chunks();
    const u32 stage = kIndex == 0 ? wg.smem.k() : wg.smem.v();
    if constexpr (kDkColumns.count > 0)
      Dkv{wg}.template store_dk<kChunks>(work, stage, kDkColumns.begin, dk);
    if constexpr (kDvColumns.count > 0)
      Dkv{wg}.template store_dv<kChunks>(work, stage, kDvColumns.begin, dv);
  }
};

}  // namespace attnforge
