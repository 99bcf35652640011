// warpgroup.cuh - what a warpgroup of bwd_wgmma_sm90a does with a query tile: scores transposed, so
// that probabilities and their gradients are operands of dV and dK in registers, and only dQ takes
// the gradients through shared memory (FlashAttention-3, Shah et al. 2024).
#pragma once

#include "backward/score_slopes.cuh"
#include "backward/tile_mask.cuh"
#include "backward/transposed_scores.cuh"
#include "backward/turns.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/dargs.cuh"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/reduction.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma_whole.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// A warpgroup that computes: what it does with one query tile, however the work is shared. Pieces:
/// DensePieces<C> (pieces/dense.cuh), Queries and a Slope, or what an entry makes of them.
template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aWarpgroup : BwdWgmmaSm90aDargs<C, Pieces> {
  using Dargs = BwdWgmmaSm90aDargs<C, Pieces>;
  using Dargs::has_key_sums;
  using Dargs::key_sums_of_text;
  using Dargs::stores_aside;
  using Dargs::stores_tiles;

  using Shared = BwdWgmmaSm90aShared<C>;
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;
  using Slope = typename Pieces::Slope;
  template <int kDim>
  using Transposed = WgmmaKK<C.dtype, C.block_m, ceil_div(kDim, 16)>;
  using Dq = WgmmaMnK<C.dtype, C.dq_rows(), C.block_n() / 16>;
  using DqPair = WgmmaMnK<C.dtype, 2 * C.dq_rows(), C.block_n() / 16>;
  template <int kColumns>
  using Sums = WgmmaRegsMn<C.dtype, kColumns, C.block_m / 16>;

  static constexpr int kScoreFragments = C.block_m / 8;  // of 8 queries
  static constexpr int kDqFragments = C.dq_rows() / 8;
  static constexpr int kConsumers = 128 * C.warpgroups;

  const Params& params;
  const FwdParams& p;
  const Shared smem;
  const int warpgroup;
  const Slope slope;
  const float scale_log2;
  // Tiles before this one. All places in rings follow from it: a position in each would take
  // registers that products want.
  u32 count = 0;

  // What a query tile needs. Locals of the loop: as members they would be kept from tile to tile.
  using Scores = float[kScoreFragments][4];     // scores, then probabilities; or their gradients
  using Rounded = u32[kScoreFragments / 2][4];  // as operand A
  using DqParts = float[C.dq_held()][kDqFragments][4];  // of a round

  ATTNFORGE_DEVICE BwdWgmmaSm90aWarpgroup(const Params& kernel_params, Shared shared, int index)
      : params(kernel_params),
        p(kernel_params.fwd),
        smem(shared),
        warpgroup(index),
        slope(p),
        scale_log2((Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f) {}

  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  ATTNFORGE_DEVICE static int warp() { return thread_index() / 32 % 4; }
  /// Where its keys begin among the block's.
  ATTNFORGE_DEVICE int own_keys() const { return C.split_columns ? 0 : warpgroup * 64; }
  /// The first of this warp's 16 keys among the block's, and this lane's first.
  ATTNFORGE_DEVICE int warp_keys() const { return own_keys() + warp() * 16; }
  ATTNFORGE_DEVICE int lane_key() const { return warp_keys() + MmaFragment::row(lane()); }
  /// Hides that an address never changes: ptxas would compute the descriptors of all parts before
  /// the main loop and keep them, in registers that products want.
  ATTNFORGE_DEVICE static void keep_in_loop(u32& address) { asm volatile("" : "+r"(address)); }
  template <int kStages>
  ATTNFORGE_DEVICE static u32 stage_of(u32 tile) {
    return tile % kStages;
  }
  template <int kStages>
  ATTNFORGE_DEVICE static u32 parity_of(u32 tile) {
    return tile / kStages % 2;
  }
  ATTNFORGE_DEVICE static u32 ds_stage(u32 tile) { return stage_of<C.ds_stages>(tile); }
  ATTNFORGE_DEVICE static u32 ds_parity(u32 tile) { return parity_of<C.ds_stages>(tile); }
  ATTNFORGE_DEVICE u32 q_tile() const { return smem.q(stage_of<C.q_stages>(count)); }
  ATTNFORGE_DEVICE u32 do_tile() const { return smem.dout(stage_of<C.do_stages>(count)); }
  ATTNFORGE_DEVICE static void release(u32 empty) {
    if (lane() == 0) mbarrier_arrive(empty);
  }

  // -- Products. Each is in flight until a wait --

  /// d = (64 keys of `keys`) x (query rows of `rows`), both with columns in chunks of 64.
  template <int kDim>
  ATTNFORGE_DEVICE void issue_transposed(Scores& d, u32 keys, u32 rows) {
    keep_in_loop(keys);
    keep_in_loop(rows);
    const u64 a = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(keys + own_keys() * C.kSwizzle);
    const u64 b = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(rows);
    Transposed<kDim>::template set<C.key_chunk_bytes() / 16, C.row_chunk_bytes() / 16>(d, a, b);
    wgmma_commit();
  }
  ATTNFORGE_DEVICE void issue_scores(Scores& s) {
    issue_transposed<C.head_dim>(s, smem.k(), q_tile());
  }
  ATTNFORGE_DEVICE void issue_dp(Scores& dp) {
    issue_transposed<C.head_dim_v>(dp, smem.v(), do_tile());
  }
  /// sums += a (64 keys x query rows, in registers) x (query rows of `rows`).
  template <int kFragments>
  ATTNFORGE_DEVICE void issue_sums(float (&sums)[kFragments][4], const Rounded& a, u32 rows) {
    const u64 b = smem_descriptor<C.kSwizzle, C.row_chunk_bytes(), 8 * C.kSwizzle>(rows);
    Sums<8 * kFragments>::template add<C.kSwizzle>(sums, a, b);
    wgmma_commit();
  }
  /// dQ of a part, or of it and the one after it, transposed: (64 columns of K) x (query rows of
  /// dS).
  template <class Product, class Sums>
  ATTNFORGE_DEVICE void issue_dq_part(Sums& sums, int ds_stage, int part) {
    const int block = part / C.dq_sharers(), share = part % C.dq_sharers();
    const u64 a = smem_descriptor<C.kSwizzle, C.key_chunk_bytes(), 8 * C.kSwizzle>(
        smem.k() + block * C.key_chunk_bytes());
    const u64 b = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(smem.ds(ds_stage) +
                                                                  share * C.dq_rows() * C.kSwizzle);
    Product::template set<C.kSwizzle, C.row_chunk_bytes() / 16>(sums, a, b);
  }
  /// dQ of this warpgroup's parts of a round.
  template <int kRound = 0>
  ATTNFORGE_DEVICE void issue_dq(DqParts& dq, int ds_stage) {
    if constexpr (C.dq_pairs()) {
      issue_dq_part<DqPair>(reinterpret_cast<float(&)[2 * kDqFragments][4]>(dq), ds_stage,
                            dq_part(0, 0));
      issue_dq_part<Dq>(dq[2], ds_stage, dq_part(0, 2));
    } else {
#pragma unroll
      for (int i = 0; i < C.dq_parts_of(kRound); ++i)
        issue_dq_part<Dq>(dq[i], ds_stage, dq_part(kRound, i));
    }
    wgmma_commit();
  }
  ATTNFORGE_DEVICE int dq_part(int round, int i) const {
    if constexpr (C.dq_pairs()) return i < 2 ? warpgroup * 4 + i : 2 + warpgroup;
    return warpgroup * C.dq_own() + round * C.dq_held() + i;
  }

  ATTNFORGE_DEVICE static void pin_dq(DqParts& dq) {
    unrolled<C.dq_held()>([&](int i) { pin(dq[i]); });
  }

  // -- Scores to probabilities, and their gradients --

  using View = TransposedScores<Scores>;
  using Ahead = typename Pieces::Score::template Ahead<View>;
  ATTNFORGE_DEVICE void look_ahead(const Work& work, const QueryPlace& place, Scores& s,
                                   Ahead& ahead) const {
    if constexpr (Ahead::kReads)
      ahead.begin(View{s, place.m * C.block_m, work.keys.first_key + lane_key()},
                  work.keys.queries_of(place.head));
  }

  using Mask = TileMask<typename Pieces::Mask, View>;
  ATTNFORGE_DEVICE void ask_mask(const Work& work, const QueryPlace& place, Scores& s,
                                 Mask& mask) const {
    mask.begin(work, place, View{s, place.m * C.block_m, work.keys.first_key + lane_key()});
  }

  /// The elements of an array that scores on their way read by rows.
  ATTNFORGE_DEVICE void read_rows(Ahead& ahead) const {
    if constexpr (C.may_tile_rows()) {
      const u32 stage = stage_of<C.row_stages()>(count);
      mbarrier_wait(smem.rows_full(stage), parity_of<C.row_stages()>(count));
      ahead.read(smem.rows(stage), warp_keys());
    }
  }
  /// After something that they went into was stored: an arrival does not wait for reads before it.
  ATTNFORGE_DEVICE void release_rows() const {
    if constexpr (C.may_tile_rows()) {
      __syncwarp();
      release(smem.rows_empty(stage_of<C.row_stages()>(count)));
    }
  }

  /// Scores to probabilities, in p16; s becomes what dP - delta is multiplied with: without the
  /// slopes if key_sums_of_text(). `before`: the scores as they were, if add_key_sums() wants them.
  ATTNFORGE_DEVICE void probabilities(const Work& work, const QueryPlace& place, Scores& s,
                                      Rounded& p16, Ahead& ahead, const Mask& mask,
                                      Scores& before) const {
    const int first_row = place.m * C.block_m, first_key = work.keys.first_key + lane_key();
    const auto queries = work.keys.queries_of(place.head);
    const auto view_of = [&](Scores& x) { return View{x, first_row, first_key}; };
    Scores slopes;
    if constexpr (!key_sums_of_text()) make_slopes<Slope>(s, slopes, view_of, queries);
    if constexpr (has_key_sums()) copy_scores(s, before);
    ahead.template apply<typename Pieces::Score>(view_of(s), queries);
    if (mask.masked(work, place)) mask.apply(view_of(s), queries);
    const u32 lse = smem.lse(stage_of<C.q_stages>(count)) + MmaFragment::column(lane()) * 4;
#pragma unroll
    for (int j = 0; j < kScoreFragments; ++j) {
      float shift[2], x[4];
      load_shared(shift, lse + j * 32);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        x[c] = probability<Slope>(s[j][c], scale_log2, shift[c % 2]);
        s[j][c] = key_sums_of_text() ? x[c] : times_slope(x[c], slope, s[j][c], slopes[j][c]);
      }
      unrolled<2>(
          [&](int r) { p16[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(x[2 * r], x[2 * r + 1]); });
    }
  }
  /// dS = P (dP - delta). Where P is 0 in a masked tile dS is 0 whatever dP is.
  ATTNFORGE_DEVICE void gradients(const Work& work, const QueryPlace& place, const Scores& s,
                                  Scores& dp, Rounded& ds16, bool masked) const {
    if (masked) {
      unrolled<kScoreFragments, 4>(
          [&](int j, int c) { dp[j][c] = s[j][c] == 0.0f ? 0.0f : dp[j][c]; });
    }
    const u32 delta = smem.delta(stage_of<C.do_stages>(count)) + MmaFragment::column(lane()) * 4;
#pragma unroll
    for (int j = 0; j < kScoreFragments; ++j) {
      float shift[2];
      load_shared(shift, delta + j * 32);
      unrolled<4>([&](int c) { dp[j][c] = s[j][c] * (dp[j][c] - shift[c % 2]); });
      unrolled<2>([&](int r) {
        ds16[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(dp[j][2 * r], dp[j][2 * r + 1]);
      });
    }
    if constexpr (C.dargs != 0 && !stores_tiles() && !has_key_sums()) {
      const View view{dp, place.m * C.block_m, work.keys.first_key + lane_key()};
      if constexpr (C.dargs == 2)
        Pieces::Dargs::store_rows(view, work.keys.queries_of(place.head));
      else
        Pieces::Dargs::add_rows(view, work.keys.queries_of(place.head));
    }
  }
  /// After gradients() of such dS: those of the scores `before`, in ds16.
  ATTNFORGE_DEVICE void apply_slopes(const Work& work, const QueryPlace& place,
                                     const Scores& before, const Scores& ds, Scores& slopes,
                                     Rounded& ds16) const {
    static_assert(Slope::kOfPair, "the text's");
    const auto view_of = [&](Scores& scores) {
      return View{scores, place.m * C.block_m, work.keys.first_key + lane_key()};
    };
    make_slopes<Slope>(before, slopes, view_of, work.keys.queries_of(place.head));
    unrolled<kScoreFragments, 2>([&](int j, int r) {
      const auto x = [&](int c) { return times_slope(ds[j][c], slope, 0.0f, slopes[j][c]); };
      ds16[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(x(2 * r), x(2 * r + 1));
    });
  }
  /// Adds a tile's dS to those gradients. `before`: of probabilities().
  ATTNFORGE_DEVICE void add_key_sums(const Work& work, const QueryPlace& place, Scores& ds,
                                     Scores& before) const {
    const auto view_of = [&](Scores& scores) {
      return View{scores, place.m * C.block_m, work.keys.first_key + lane_key()};
    };
    Pieces::Dargs::add_keys(view_of(ds), view_of(before), work.keys.queries_of(place.head));
  }
  /// Of this warp's keys, after store_ds().
  ATTNFORGE_DEVICE void store_dargs(const Work& work, const QueryPlace& place) const {
    if constexpr (stores_tiles() && !stores_aside()) {
      __syncwarp();
      const u32 chunk = smem.ds(ds_stage(count)) + own_keys() / 64 * C.row_chunk_bytes();
      Pieces::Dargs::template store_tile<C.block_m, 16, 32, C.kSwizzle>(
          work.keys.queries_of(place.head), place.m * C.block_m, work.keys.first_key + warp_keys(),
          lane(), [&](int row, int half) {
            return chunk + row * C.kSwizzle + ((warp() * 2 + half) ^ (row % 8)) * 16;
          });
    }
  }
  /// By all consumers, before their tiles: zeros in the gradient of an array where there are none.
  ATTNFORGE_DEVICE void clear_unseen(const Work& work) const {
    if constexpr (C.dargs == 2) Pieces::Dargs::template clear_unseen<C>(work, thread_index());
  }
  /// dS in shared memory: rows of queries, this warpgroup's chunk of keys.
  ATTNFORGE_DEVICE u32 ds_matrices() const {
    const u32 chunk = smem.ds(ds_stage(count)) + own_keys() / 64 * C.row_chunk_bytes();
    // Matrices: keys 0-7 and 8-15 of queries 0-7, then of queries 8-15.
    const int row = lane() % 8 + lane() / 16 * 8;
    return chunk + row * C.kSwizzle + ((warp() * 2 + lane() / 8 % 2) ^ (row % 8)) * 16;
  }
  ATTNFORGE_DEVICE void store_ds(const Rounded& ds16) const {
    const u32 at = ds_matrices();
    unrolled<kScoreFragments / 2>(
        [&](int j) { stmatrix_x4_trans(at + j * 16 * C.kSwizzle, ds16[j]); });
  }
  ATTNFORGE_DEVICE void load_ds(Rounded& ds16) const {
    const u32 at = ds_matrices();
    unrolled<kScoreFragments / 2>(
        [&](int j) { ldmatrix_x4_trans(ds16[j], at + j * 16 * C.kSwizzle); });
  }
  /// dQ of a tile: to shared memory, from where the adder takes it, or straight to the sums.
  template <int kRound = 0>
  ATTNFORGE_DEVICE void store_dq(const Work& work, const QueryPlace& place, const DqParts& dq,
                                 u32 tile) const {
    const int thread = thread_index() % 128;
    if constexpr (!C.adds_by_tma()) {
      float* const sums = work.dq_sums(params.scratch, place) + thread * 4;
#pragma unroll
      for (int i = 0; i < C.dq_parts_of(kRound); ++i) {
        const int part = dq_part(kRound, i);
        float* const to = sums + part * (C.dq_part_bytes() / 4);
        if constexpr (C.head_dim % 64 == 0) {
          unrolled<kDqFragments>([&](int j) { reduce_add_4(to + j * 512, dq[i][j]); });
        } else {
          // Nobody reads the columns after head_dim, of which a warp has 16.
          const bool wanted = part / C.dq_sharers() * 64 + warp() * 16 < C.head_dim;
          unrolled<kDqFragments>([&](int j) { reduce_add_4_if(wanted, to + j * 512, dq[i][j]); });
        }
      }
    } else {
      const u32 number = tile * C.dq_rounds + kRound;
      const u32 stage = stage_of<C.dq_stages>(number);
      mbarrier_wait(smem.dq_empty(warpgroup, stage), parity_of<C.dq_stages>(number) ^ 1);
#pragma unroll
      for (int i = 0; i < C.dq_parts_of(kRound); ++i) {
        const int at = C.dq_pairs() ? dq_part(kRound, i) - warpgroup * C.dq_own() : i;
        const u32 to = smem.dq(warpgroup, stage, at) + thread * 16;
        unrolled<kDqFragments>([&](int j) { store_shared(to + j * 2048, dq[i][j]); });
      }
      fence_proxy_async();
      __syncwarp();
      release(smem.dq_full(warpgroup, stage));
    }
  }

  /// After the last sums of a key tile.
  ATTNFORGE_DEVICE void count_added(const Work& work) const {
    if constexpr (C.adds_by_tma()) return;
    __syncwarp();
    if (lane() == 0) pass_turn(params.added + work.kv_head(params));
  }
  /// Before the first sums of a block.
  ATTNFORGE_DEVICE void await_zeros(const Work& work) const {
    if constexpr (C.adds_by_tma() || !C.zeros_ahead) return;
    if (lane() == 0) work.await_zeros(params);
    __syncwarp();
  }

  ATTNFORGE_DEVICE void await_q() const {
    mbarrier_wait(smem.q_full(stage_of<C.q_stages>(count)), parity_of<C.q_stages>(count));
  }
  ATTNFORGE_DEVICE void await_do() const {
    mbarrier_wait(smem.do_full(stage_of<C.do_stages>(count)), parity_of<C.do_stages>(count));
  }
  /// Gives the buffers of query tile `tile` back.
  ATTNFORGE_DEVICE void release_q(u32 tile) const {
    release(smem.q_empty(stage_of<C.q_stages>(tile)));
  }
  ATTNFORGE_DEVICE void release_do(u32 tile) const {
    release(smem.do_empty(stage_of<C.do_stages>(tile)));
  }
  ATTNFORGE_DEVICE static void await_consumers() { named_barrier_wait(1, kConsumers); }

  // -- Rows that are not the sequence's --

  /// Zeros in the rows of a tile from `present` on, by all consumers.
  template <int kChunks, int kRows>
  ATTNFORGE_DEVICE static void clear_rows(u32 tile, int present) {
    constexpr int kRowPieces = C.kSwizzle / 16;
    constexpr float kZeros[4] = {};
#pragma unroll 1
    for (int c = 0; c < kChunks; ++c)
#pragma unroll 1
      for (int i = present * kRowPieces + thread_index(); i < kRows * kRowPieces; i += kConsumers)
        store_shared(tile + c * kRows * C.kSwizzle + i * 16, kZeros);
  }
  /// Products take rows after the last key and the last query, too: their probabilities are 0,
  /// which is not enough where they are another sequence's NaN.
  ATTNFORGE_DEVICE void clear_keys(const Work& work) const {
    if constexpr (Work::Tile::Lengths::kAnythingAfter) {
      const int present = work.keys.lengths.kv() - work.keys.first_key;
      if (present >= C.block_n()) return;
      clear_rows<C.qk_chunks(), C.block_n()>(smem.k(), present);
      clear_rows<C.v_chunks(), C.block_n()>(smem.v(), present);
      fence_proxy_async();
      await_consumers();
    }
  }
  ATTNFORGE_DEVICE void clear_queries(const Work& work, int m) const {
    if constexpr (Work::Tile::Lengths::kAnythingAfter) {
      const int present = work.keys.lengths.q() - m * C.block_m;
      if (present >= C.block_m) return;
      await_do();
      clear_rows<C.qk_chunks(), C.block_m>(q_tile(), present);
      clear_rows<C.v_chunks(), C.block_m>(do_tile(), present);
      fence_proxy_async();
      await_consumers();
    }
  }
};

}  // namespace attnforge
