// kernel.cuh - attention backward for Hopper: a block keeps a tile of K and V and walks over the
// query tiles that see it. One warp issues TMA loads into rings of Q and dO, one adds dQ in global
// memory, and warpgroups of 64 keys each compute with wgmma: scores transposed, so that
// probabilities and their gradients are operands of dV and dK in registers, and only dQ takes the
// gradients through shared memory (FlashAttention-3, Shah et al. 2024).
#pragma once

#include "base.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "ptx/bulk.cuh"
#include "ptx/convert.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/proxy.cuh"
#include "ptx/reduction.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tile/bwd_scratch.cuh"
#include "tile/key_tile.cuh"
#include "tile/query_walk.cuh"
#include "tile/ring.cuh"
#include "tile/store_gradient.cuh"
#include "tile/tile_order.cuh"
#include "tile/transposed_scores.cuh"
#include "tile/turns.cuh"

namespace attnforge {

/// Pieces: DensePieces<C> (pieces/dense.cuh) and a Slope, or what an entry makes of them. Params is
/// the kernel's argument.
template <BwdWgmmaSm90aConfig C, class Pieces, class ParamsType = BwdWgmmaSm90aParams>
struct BwdWgmmaSm90a {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  using Params = ParamsType;
  using Tile = KeyTile<typename Pieces::Lengths>;
  using Slope = typename Pieces::Slope;
  using Walk = QueryWalk<C.left_bound != 0, C.right_bound != 0>;

  static constexpr int kScoreFragments = C.block_m / 8;  // of 8 queries
  static constexpr int kDkFragments = C.head_dim / 8;
  static constexpr int kDvFragments = C.head_dim_v / 8;
  static constexpr int kDqFragments = C.dq_rows() / 8;
  static constexpr int kConsumerWarps = 4 * C.warpgroups;
  static constexpr int kConsumers = 128 * C.warpgroups;

  // ---- Shared memory and barriers, as 32-bit addresses ----

  struct Shared {
    u32 base;

    ATTNFORGE_DEVICE u32 k() const { return base; }
    ATTNFORGE_DEVICE u32 v() const { return base + C.v_begin(); }
    ATTNFORGE_DEVICE u32 q(int stage) const { return base + C.q_begin() + stage * C.q_bytes(); }
    ATTNFORGE_DEVICE u32 dout(int stage) const {
      return base + C.do_begin() + stage * C.do_bytes();
    }
    ATTNFORGE_DEVICE u32 ds(int stage) const { return base + C.ds_begin() + stage * C.ds_bytes(); }
    ATTNFORGE_DEVICE u32 dq(int part) const {
      return base + C.dq_begin() + part * C.dq_part_bytes();
    }
    ATTNFORGE_DEVICE u32 lse(int stage) const {
      return base + C.lse_begin() + stage * C.stats_bytes();
    }
    ATTNFORGE_DEVICE u32 delta(int stage) const {
      return base + C.delta_begin() + stage * C.stats_bytes();
    }
    // Full: TMA has written a buffer. Empty: every consumer warp has read it.
    ATTNFORGE_DEVICE u32 kv_full() const { return barrier(0); }
    ATTNFORGE_DEVICE u32 q_full(int stage) const { return barrier(1 + stage); }
    ATTNFORGE_DEVICE u32 q_empty(int stage) const { return barrier(1 + C.q_stages + stage); }
    ATTNFORGE_DEVICE u32 do_full(int stage) const { return barrier(1 + 2 * C.q_stages + stage); }
    ATTNFORGE_DEVICE u32 do_empty(int stage) const {
      return barrier(1 + 2 * C.q_stages + C.do_stages + stage);
    }
    // Full: a warpgroup has written its parts of dQ. Empty: they are on their way.
    ATTNFORGE_DEVICE u32 dq_full(int warpgroup) const {
      return barrier(1 + 2 * (C.q_stages + C.do_stages) + warpgroup);
    }
    ATTNFORGE_DEVICE u32 dq_empty(int warpgroup) const {
      return barrier(1 + 2 * (C.q_stages + C.do_stages) + C.warpgroups + warpgroup);
    }

    // late_dq. Full: all consumer warps have written dS. Empty: all have read it.
    ATTNFORGE_DEVICE u32 ds_full(int stage) const {
      return barrier(1 + 2 * (C.q_stages + C.do_stages + C.warpgroups) + stage);
    }
    ATTNFORGE_DEVICE u32 ds_empty(int stage) const { return ds_full(C.ds_stages + stage); }

    ATTNFORGE_DEVICE u32 barrier(int index) const { return base + C.barriers_begin() + 8 * index; }
    ATTNFORGE_DEVICE void init_barriers() const {
      mbarrier_init(kv_full(), 1);
      for (int i = 0; i < C.q_stages; ++i) {
        mbarrier_init(q_full(i), 1);
        mbarrier_init(q_empty(i), kConsumerWarps);
      }
      for (int i = 0; i < C.do_stages; ++i) {
        mbarrier_init(do_full(i), 1);
        mbarrier_init(do_empty(i), kConsumerWarps);
      }
      for (int i = 0; i < C.warpgroups; ++i) {
        mbarrier_init(dq_full(i), 4);
        mbarrier_init(dq_empty(i), 1);
      }
      for (int i = 0; i < (C.late_dq ? C.ds_stages : 0); ++i) {
        mbarrier_init(ds_full(i), kConsumerWarps);
        mbarrier_init(ds_empty(i), kConsumerWarps);
      }
      mbarrier_init_fence();
    }
  };

  // ---- The work: a key tile, and the query tiles of its group's heads that see it ----

  /// A query tile of a head.
  struct Place {
    int head, m;
  };

  struct Work {
    Tile keys;
    Walk walk;

    ATTNFORGE_DEVICE explicit Work(const Params& params)
        : keys(params, place_tile(params.order, block_index()), C.block_n()),
          walk(Walk::of_keys(keys.p, keys.lengths, C.block_m, keys.first_key, C.block_n())) {}

    ATTNFORGE_DEVICE int tiles() const { return walk.count() * keys.group(); }
    // In order, from the last query tile to the first: then all blocks of a head begin at the same
    // one, and those that wait for others start after them.
    ATTNFORGE_DEVICE int first_m() const { return C.dq == kDqInOrder ? walk.end - 1 : walk.begin; }
    ATTNFORGE_DEVICE Place first() const { return {keys.first_query_head(), first_m()}; }
    ATTNFORGE_DEVICE void advance(Place& place) const {
      const int next = C.dq == kDqInOrder ? place.m - 1 : place.m + 1;
      const bool wraps = C.dq == kDqInOrder ? next < walk.begin : next == walk.end;
      place.m = wraps ? first_m() : next;
      place.head += wraps;
    }
    /// Calls visit(place) for each.
    template <class Visit>
    ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
      Place place = first();
#pragma unroll 1
      for (int left = tiles(); left > 0; --left) {
        visit(place);
        advance(place);
      }
    }
    /// Where rows of a query tile lie in the scratch arrays.
    ATTNFORGE_DEVICE i64 scratch_row(const BwdScratch& scratch, const Place& place) const {
      return first_scratch_row<C.block_m>(keys.p, scratch, keys.lengths, keys.sequence,
                                          place.head) +
             place.m * C.block_m;
    }
    /// How many key tiles before this one see a query tile.
    ATTNFORGE_DEVICE int turn(const Place& place) const {
      const int own = keys.first_key / C.block_n();
      if constexpr (!C.left_bound) return own;
      const int position = place.m * C.block_m + keys.lengths.kv() - keys.lengths.q();
      return own - max(position - keys.p.window_left, 0) / C.block_n();
    }
  };

  // ---- 1. Producer: one thread, which keeps the rings full ----

  ATTNFORGE_DEVICE static void load(const Params& params, const Shared& smem) {
    const Work work(params);
    const Tile& keys = work.keys;
    Ring<C.q_stages> q_ring;
    Ring<C.do_stages> do_ring;
    if (work.tiles() <= 0) return;

    mbarrier_arrive_expect(smem.kv_full(), C.k_bytes() + C.v_bytes());
#pragma unroll
    for (int c = 0; c < C.qk_chunks(); ++c)
      tma_load_4d(smem.k() + c * C.key_chunk_bytes(), params.k, smem.kv_full(), kEvictFirst,
                  c * C.kChunkColumns, keys.lengths.kv_begin() + keys.first_key, keys.kv_head,
                  keys.lengths.batch());
    const auto load_v = [&] {
#pragma unroll
      for (int c = 0; c < C.v_chunks(); ++c)
        tma_load_4d(smem.v() + c * C.key_chunk_bytes(), params.v, smem.kv_full(), kEvictFirst,
                    c * C.kChunkColumns, keys.lengths.kv_begin() + keys.first_key, keys.kv_head,
                    keys.lengths.batch());
    };
    bool first = true;
    work.for_each([&](const Place& place) {
      const i64 row = work.scratch_row(params.scratch, place);
      const int query = keys.lengths.q_begin() + place.m * C.block_m;
      const int q_stage = q_ring.stage, do_stage = do_ring.stage;
      mbarrier_wait(smem.q_empty(q_stage), q_ring.parity ^ 1);
      mbarrier_arrive_expect(smem.q_full(q_stage), C.q_bytes() + C.stats_bytes());
#pragma unroll
      for (int c = 0; c < C.qk_chunks(); ++c)
        tma_load_4d(smem.q(q_stage) + c * C.row_chunk_bytes(), params.q, smem.q_full(q_stage),
                    kEvictLast, c * C.kChunkColumns, query, place.head, keys.lengths.batch());
      bulk_load(smem.lse(q_stage), params.scratch.lse_log2 + row, C.stats_bytes(),
                smem.q_full(q_stage));
      q_ring.advance();
      if (first) load_v();
      first = false;
      mbarrier_wait(smem.do_empty(do_stage), do_ring.parity ^ 1);
      mbarrier_arrive_expect(smem.do_full(do_stage), C.do_bytes() + C.stats_bytes());
#pragma unroll
      for (int c = 0; c < C.v_chunks(); ++c)
        tma_load_4d(smem.dout(do_stage) + c * C.row_chunk_bytes(), params.dout,
                    smem.do_full(do_stage), kEvictLast, c * C.kChunkColumns, query, place.head,
                    keys.lengths.batch());
      bulk_load(smem.delta(do_stage), params.scratch.delta + row, C.stats_bytes(),
                smem.do_full(do_stage));
      do_ring.advance();
    });
  }

  // ---- 2. Adder: one thread, which adds each tile's dQ to the sums in global memory ----

  ATTNFORGE_DEVICE static void add_dq(const Params& params, const Shared& smem) {
    const Work work(params);
    u32 parity = 0;
    work.for_each([&](const Place& place) {
      float* const sums = params.scratch.dq_sums +
                          work.scratch_row(params.scratch, place) * C.dq_columns();
      const auto add = [&](int w) {
#pragma unroll
        for (int part = w; part < C.dq_parts(); part += C.warpgroups)
          bulk_add(sums + part * (C.dq_part_bytes() / 4), smem.dq(part), C.dq_part_bytes());
        bulk_commit();
      };
      if constexpr (C.dq == kDqAnyOrder) {
#pragma unroll
        for (int w = 0; w < C.warpgroups; ++w) {
          mbarrier_wait(smem.dq_full(w), parity);
          add(w);
          bulk_wait_read<0>();
          mbarrier_arrive(smem.dq_empty(w));
        }
      } else {
        int* const turns = params.dq_turns + work.scratch_row(params.scratch, place) / C.block_m;
        for (int w = 0; w < C.warpgroups; ++w) mbarrier_wait(smem.dq_full(w), parity);
        await_turn(turns, work.turn(place));
        for (int w = 0; w < C.warpgroups; ++w) add(w);
        bulk_wait_read<0>();
        for (int w = 0; w < C.warpgroups; ++w) mbarrier_arrive(smem.dq_empty(w));
        bulk_wait<0>();
        pass_turn(turns);
      }
      parity ^= 1;
    });
    bulk_wait<0>();
  }

  // ---- 3. Consumer: a warpgroup, 64 keys of the tile ----

  struct Consumer {
    using Products = Wgmma<C.dtype, C.block_m>;
    using Dk = Wgmma<C.dtype, C.head_dim>;
    using Dv = Wgmma<C.dtype, C.head_dim_v>;
    using Dq = Wgmma<C.dtype, C.dq_rows()>;

    const Params& params;
    const FwdParams& p;
    const Shared smem;
    const int warpgroup;
    const Slope slope;
    const float scale_log2;
    // Tiles before this one. All places in rings follow from it: a position in each would take
    // registers that products want.
    u32 count = 0;
    float dk[kDkFragments][4];
    float dv[kDvFragments][4];

    // Of a query tile. Locals of the loop: as members they would be kept from tile to tile.
    using Scores = float[kScoreFragments][4];     // scores, then probabilities; or their gradients
    using Rounded = u32[kScoreFragments / 2][4];  // as operand A
    using DqParts = float[C.dq_own()][kDqFragments][4];

    ATTNFORGE_DEVICE Consumer(const Params& kernel_params, Shared shared, int index)
        : params(kernel_params),
          p(kernel_params.fwd),
          smem(shared),
          warpgroup(index),
          slope(p),
          scale_log2((Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f) {}

    ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
    ATTNFORGE_DEVICE static int warp() { return thread_index() / 32 % 4; }
    /// This lane's first key among the block's.
    ATTNFORGE_DEVICE int lane_key() const {
      return warpgroup * 64 + warp() * 16 + MmaFragment::row(lane());
    }
    template <int kStages>
    ATTNFORGE_DEVICE static u32 stage_of(u32 tile) {
      return tile % kStages;
    }
    template <int kStages>
    ATTNFORGE_DEVICE static u32 parity_of(u32 tile) {
      return tile / kStages % 2;
    }
    ATTNFORGE_DEVICE u32 q_tile() const { return smem.q(stage_of<C.q_stages>(count)); }
    ATTNFORGE_DEVICE u32 do_tile() const { return smem.dout(stage_of<C.do_stages>(count)); }
    ATTNFORGE_DEVICE static void release(u32 empty) {
      if (lane() == 0) mbarrier_arrive(empty);
    }

    // -- Products. Each is in flight until a wait --

    /// d = (64 keys of `keys`) x (query rows of `rows`), both with columns in chunks of 64.
    template <int kDim>
    ATTNFORGE_DEVICE void issue_transposed(Scores& d, u32 keys, u32 rows) {
      const u64 a = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(keys +
                                                                    warpgroup * 64 * C.kSwizzle);
      const u64 b = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(rows);
      pin(d);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < ceil_div(kDim, 16); ++k) {
        const int chunk = k / 4, inside = k % 4 * 32;
        Products::smem_smem(d, a + (chunk * C.key_chunk_bytes() + inside) / 16,
                            b + (chunk * C.row_chunk_bytes() + inside) / 16, k > 0);
      }
      wgmma_commit();
    }
    ATTNFORGE_DEVICE void issue_scores(Scores& s) {
      issue_transposed<C.head_dim>(s, smem.k(), q_tile());
    }
    ATTNFORGE_DEVICE void issue_dp(Scores& dp) {
      issue_transposed<C.head_dim_v>(dp, smem.v(), do_tile());
    }
    /// sums += a (64 keys x query rows, in registers) x (query rows of `rows`).
    template <class Product, int kFragments>
    ATTNFORGE_DEVICE void issue_sums(float (&sums)[kFragments][4], Rounded& a, u32 rows) {
      const u64 b = smem_descriptor<C.kSwizzle, C.row_chunk_bytes(), 8 * C.kSwizzle>(rows);
      pin(sums);
      pin(a);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < C.block_m / 16; ++j)
        Product::regs_smem_mn(sums, a[j][0], a[j][1], a[j][2], a[j][3],
                              b + j * 16 * C.kSwizzle / 16);
      wgmma_commit();
    }
    /// dQ, transposed: (64 columns of K) x (query rows of dS), of this warpgroup's parts.
    ATTNFORGE_DEVICE void issue_dq(DqParts& dq, int ds_stage) {
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) {
        const int part = warpgroup + i * C.warpgroups;
        const int block = part / C.dq_sharers(), share = part % C.dq_sharers();
        const u64 a = smem_descriptor<C.kSwizzle, C.key_chunk_bytes(), 8 * C.kSwizzle>(
            smem.k() + block * C.key_chunk_bytes());
        const u64 b = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(
            smem.ds(ds_stage) + share * C.dq_rows() * C.kSwizzle);
        pin(dq[i]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < C.block_n() / 16; ++k)
          Dq::smem_mn_smem(dq[i], a + k * 16 * C.kSwizzle / 16,
                           b + (k / 4 * C.row_chunk_bytes() + k % 4 * 32) / 16, k > 0);
      }
      wgmma_commit();
    }

    // -- Scores to probabilities, and their gradients --

    /// Scores to probabilities, in p16; s becomes what dP - delta is multiplied with.
    ATTNFORGE_DEVICE void probabilities(const Work& work, int m, Scores& s, Rounded& p16) const {
      const TransposedScores<Scores> view{s, m * C.block_m, work.keys.first_key + lane_key()};
      Pieces::Score::apply(view, work.keys);
      if (work.walk.masked(m)) Pieces::Mask::apply(view, work.keys);
      const u32 lse = smem.lse(stage_of<C.q_stages>(count)) + MmaFragment::column(lane()) * 4;
#pragma unroll
      for (int j = 0; j < kScoreFragments; ++j) {
        float shift[2], x[4];
        load_shared_floats(shift, lse + j * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) {
          x[c] = exp2_approx(fmaf(s[j][c], scale_log2, -shift[c % 2]));
          s[j][c] = Slope::kOne ? x[c] : x[c] * slope(s[j][c]);
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
          p16[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(x[2 * r], x[2 * r + 1]);
      }
    }
    /// dS = P (dP - delta). Where P is 0 in a masked tile dS is 0 whatever dP is.
    ATTNFORGE_DEVICE void gradients(const Work& work, int m, const Scores& s, Scores& dp,
                                    Rounded& ds16) const {
      if (work.walk.masked(m)) {
#pragma unroll
        for (int j = 0; j < kScoreFragments; ++j)
#pragma unroll
          for (int c = 0; c < 4; ++c) dp[j][c] = s[j][c] == 0.0f ? 0.0f : dp[j][c];
      }
      const u32 delta = smem.delta(stage_of<C.do_stages>(count)) + MmaFragment::column(lane()) * 4;
#pragma unroll
      for (int j = 0; j < kScoreFragments; ++j) {
        float shift[2];
        load_shared_floats(shift, delta + j * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) dp[j][c] = s[j][c] * (dp[j][c] - shift[c % 2]);
#pragma unroll
        for (int r = 0; r < 2; ++r)
          ds16[j / 2][j % 2 * 2 + r] = pack2<C.dtype>(dp[j][2 * r], dp[j][2 * r + 1]);
      }
    }
    /// dS to shared memory: rows of queries, this warpgroup's chunk of keys.
    ATTNFORGE_DEVICE void store_ds(const Rounded& ds16) const {
      const u32 chunk = smem.ds(stage_of<C.ds_stages>(count)) + warpgroup * C.row_chunk_bytes();
      // Matrices: keys 0-7 and 8-15 of queries 0-7, then of queries 8-15.
      const int row = lane() % 8 + lane() / 16 * 8;
      const u32 at = chunk + row * C.kSwizzle + ((warp() * 2 + lane() / 8 % 2) ^ (row % 8)) * 16;
#pragma unroll
      for (int j = 0; j < kScoreFragments / 2; ++j)
        stmatrix_x4_trans(at + j * 16 * C.kSwizzle, ds16[j]);
    }
    /// dQ of a tile: to shared memory, from where the adder takes it, or straight to the sums.
    ATTNFORGE_DEVICE void store_dq(const Work& work, const Place& place, const DqParts& dq,
                                   u32 tile) const {
      const int thread = thread_index() % 128;
      if constexpr (!C.adds_by_tma()) {
        float* const sums = params.scratch.dq_sums +
                            work.scratch_row(params.scratch, place) * C.dq_columns() + thread * 4;
#pragma unroll
        for (int i = 0; i < C.dq_own(); ++i) {
          float* const to = sums + (warpgroup + i * C.warpgroups) * (C.dq_part_bytes() / 4);
#pragma unroll
          for (int j = 0; j < kDqFragments; ++j) reduce_add_4(to + j * 512, dq[i][j]);
        }
      } else {
        mbarrier_wait(smem.dq_empty(warpgroup), parity_of<1>(tile) ^ 1);
#pragma unroll
        for (int i = 0; i < C.dq_own(); ++i) {
          const u32 to = smem.dq(warpgroup + i * C.warpgroups) + thread * 16;
#pragma unroll
          for (int j = 0; j < kDqFragments; ++j) store_shared(to + j * 2048, dq[i][j]);
        }
        fence_proxy_async();
        __syncwarp();
        release(smem.dq_full(warpgroup));
      }
    }

    ATTNFORGE_DEVICE void await_q() const {
      mbarrier_wait(smem.q_full(stage_of<C.q_stages>(count)), parity_of<C.q_stages>(count));
    }
    ATTNFORGE_DEVICE void await_do() const {
      mbarrier_wait(smem.do_full(stage_of<C.do_stages>(count)), parity_of<C.do_stages>(count));
    }
    /// Of a tile.
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
      if constexpr (Tile::Lengths::kAnythingAfter) {
        const int present = work.keys.lengths.kv() - work.keys.first_key;
        if (present >= C.block_n()) return;
        clear_rows<C.qk_chunks(), C.block_n()>(smem.k(), present);
        clear_rows<C.v_chunks(), C.block_n()>(smem.v(), present);
        fence_proxy_async();
        await_consumers();
      }
    }
    ATTNFORGE_DEVICE void clear_queries(const Work& work, int m) const {
      if constexpr (Tile::Lengths::kAnythingAfter) {
        const int present = work.keys.lengths.q() - m * C.block_m;
        if (present >= C.block_m) return;
        await_do();
        clear_rows<C.qk_chunks(), C.block_m>(q_tile(), present);
        clear_rows<C.v_chunks(), C.block_m>(do_tile(), present);
        fence_proxy_async();
        await_consumers();
      }
    }

    // -- A query tile --

    /// P and dS of a tile; nothing is in flight before or after.
    ATTNFORGE_DEVICE void score_gradients(const Work& work, int m, Rounded& p16, Rounded& ds16) {
      Scores s, dp;
      await_q();
      clear_queries(work, m);
      issue_scores(s);
      await_do();
      issue_dp(dp);
      wgmma_wait<1>();
      pin(s);
      probabilities(work, m, s, p16);
      wgmma_wait<0>();
      pin(dp);
      gradients(work, m, s, dp, ds16);
    }

    /// dK and dV of a tile, then dQ, whose dS comes from all warpgroups.
    ATTNFORGE_DEVICE void attend(const Work& work, const Place& place) {
      Rounded p16, ds16;
      DqParts dq;
      score_gradients(work, place.m, p16, ds16);
      if constexpr (C.ds_stages == 1) await_consumers();  // all have read the dS before
      store_ds(ds16);
      fence_proxy_async();
      issue_sums<Dv>(dv, p16, do_tile());
      await_consumers();
      issue_dq(dq, stage_of<C.ds_stages>(count));
      issue_sums<Dk>(dk, ds16, q_tile());
      wgmma_wait<1>();  // all but dK
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) pin(dq[i]);
      pin(dv);
      pin(p16);
      release_do(count);
      store_dq(work, place, dq, count);
      wgmma_wait<0>();
      pin(dk);
      pin(ds16);
      release_q(count);
      ++count;
    }

    // late_dq: dQ of a tile is computed with dV and dK of the next, so that warpgroups need not be
    // at the same place: one has its exponentials under the products of the other.

    /// dK and dV of a tile, and dQ of the one before, if there is one.
    template <bool kFirst>
    ATTNFORGE_DEVICE void attend_late(const Work& work, const Place& place, const Place& before) {
      Rounded p16, ds16;
      DqParts dq;
      score_gradients(work, place.m, p16, ds16);
      mbarrier_wait(smem.ds_empty(stage_of<C.ds_stages>(count)), parity_of<C.ds_stages>(count) ^ 1);
      store_ds(ds16);
      fence_proxy_async();
      __syncwarp();
      release(smem.ds_full(stage_of<C.ds_stages>(count)));
      if constexpr (!kFirst) issue_late_dq(dq);
      issue_sums<Dv>(dv, p16, do_tile());
      issue_sums<Dk>(dk, ds16, q_tile());
      if constexpr (!kFirst) {
        wgmma_wait<2>();
        finish_late_dq(work, before, dq);
      }
      wgmma_wait<0>();
      pin(dv);
      pin(dk);
      pin(p16);
      pin(ds16);
      release_do(count);
      release_q(count);
      ++count;
    }
    ATTNFORGE_DEVICE void issue_late_dq(DqParts& dq) {
      const u32 stage = stage_of<C.ds_stages>(count - 1);
      mbarrier_wait(smem.ds_full(stage), parity_of<C.ds_stages>(count - 1));
      issue_dq(dq, stage);
    }
    ATTNFORGE_DEVICE void finish_late_dq(const Work& work, const Place& before, DqParts& dq) {
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) pin(dq[i]);
      release(smem.ds_empty(stage_of<C.ds_stages>(count - 1)));
      store_dq(work, before, dq, count - 1);
    }
    ATTNFORGE_DEVICE void finish_late(const Work& work, const Place& before) {
      DqParts dq;
      issue_late_dq(dq);
      wgmma_wait<0>();
      finish_late_dq(work, before, dq);
    }

    ATTNFORGE_DEVICE void run() {
      const Work work(params);
#pragma unroll
      for (int j = 0; j < kDkFragments; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) dk[j][c] = 0.0f;
#pragma unroll
      for (int j = 0; j < kDvFragments; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) dv[j][c] = 0.0f;
      if (work.tiles() > 0) {
        mbarrier_wait(smem.kv_full(), 0);
        clear_keys(work);
        if constexpr (!C.late_dq) {
          work.for_each([&](const Place& place) { attend(work, place); });
        } else {
          Place place = work.first(), before = place;
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
      store(work);
    }

    // -- dK and dV --

    ATTNFORGE_DEVICE void store(const Work& work) {
      store_tensor<C.gradient_dtype(C.dtype_k)>(work, params.dk, dk, p.softmax_scale);
      store_tensor<C.gradient_dtype(C.dtype_v)>(work, params.dv, dv, 1.0f);
    }
    template <int kDtype, int kFragments>
    ATTNFORGE_DEVICE void store_tensor(const Work& work, const TensorRef& to,
                                       const float (&sums)[kFragments][4], float factor) const {
      const int key = work.keys.first_key + lane_key(), end = work.keys.lengths.kv();
      char* const row = static_cast<char*>(to.data) +
                        work.keys.key_offset(to, key) * element_bytes(kDtype);
      const i64 bytes_apart = 8 * to.stride_row * element_bytes(kDtype);
      store_gradient_row<kDtype, C.accumulate != 0, 0, 16, kFragments>(sums, factor, row, key < end,
                                                                       lane() % 4);
      store_gradient_row<kDtype, C.accumulate != 0, 1, 16, kFragments>(
          sums, factor, row + bytes_apart, key + 8 < end, lane() % 4);
    }
  };

  // ---- 4. Roles ----

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(1024) u8 shared_memory[];
    const Shared smem{smem_address(shared_memory)};
    if (threadIdx.x == 0) smem.init_barriers();
    await_previous_grid();  // what it wrote to the scratch
    __syncthreads();
    const int warpgroup = from_lane_0(threadIdx.x / 128);
    if (warpgroup == C.warpgroups) {
      registers_shrink<C.producer_registers()>();
      if (threadIdx.x == kConsumers) load(params, smem);
      if (C.adds_by_tma() && threadIdx.x == kConsumers + 32) add_dq(params, smem);
    } else {
      registers_grow<C.consumer_registers()>();
      Consumer(params, smem, warpgroup).run();
    }
  }
};

}  // namespace attnforge
