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
#include "ptx/mbarrier.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/proxy.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/stmatrix.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tile/query_walk.cuh"
#include "tile/ring.cuh"
#include "tile/store_rows.cuh"
#include "tile/swizzle.cuh"
#include "tile/tile_order.cuh"
#include "tile/transposed_scores.cuh"

namespace attnforge {

template <BwdWgmmaSm90aConfig C, class Pieces, class ParamsType = BwdWgmmaSm90aParams>
struct BwdWgmmaSm90a {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  using Params = ParamsType;
  using Lengths = typename Pieces::Lengths;
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
    ATTNFORGE_DEVICE u32 dq(int part) const { return base + C.dq_begin() + part * C.dq_part_bytes(); }
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
      mbarrier_init_fence();
    }
  };

  // ---- The work: a key tile, and the query tiles of its group's heads that see it ----

  struct Work {
    const FwdParams& p;
    int batch, kv_head, first_key, group;
    Lengths lengths;
    Walk walk;

    ATTNFORGE_DEVICE explicit Work(const Params& params)
        : p(params.fwd), lengths(params, sequence(params)) {
      const TilePlace place = place_tile(params.order, block_index());
      batch = place.head / p.num_heads_kv;
      kv_head = place.head - batch * p.num_heads_kv;
      first_key = place.m_block * C.block_n();
      group = p.num_heads_q / p.num_heads_kv;
      walk = Walk::of_keys(p, lengths, C.block_m, first_key, C.block_n());
    }
    ATTNFORGE_DEVICE static int sequence(const Params& params) {
      return place_tile(params.order, block_index()).head / params.fwd.num_heads_kv;
    }
    ATTNFORGE_DEVICE static int query_of(int row) { return row; }
    ATTNFORGE_DEVICE int tiles() const { return walk.count() * group; }
    /// Calls visit(query head, query tile, whether it is the last) for each.
    template <class Visit>
    ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
      int head = kv_head * group, m = walk.begin;
#pragma unroll 1
      for (int left = tiles(); left > 0; --left) {
        visit(head, m, left == 1);
        const bool wraps = m + 1 == walk.end;
        m = wraps ? walk.begin : m + 1;
        head += wraps;
      }
    }
    /// Where rows of a query tile lie in the scratch arrays.
    ATTNFORGE_DEVICE i64 scratch_row(const BwdScratch& scratch, int head, int m) const {
      return i64(batch * p.num_heads_q + head) * scratch.rows_padded + m * C.block_m;
    }
  };

  // ---- 1. Producer: one thread, which keeps the rings full ----

  ATTNFORGE_DEVICE static void load(const Params& params, const Shared& smem) {
    const Work work(params);
    Ring<C.q_stages> q_ring;
    Ring<C.do_stages> do_ring;
    if (work.tiles() <= 0) return;

    mbarrier_arrive_expect(smem.kv_full(), C.k_bytes() + C.v_bytes());
#pragma unroll
    for (int c = 0; c < C.qk_chunks(); ++c)
      tma_load_4d(smem.k() + c * C.key_chunk_bytes(), params.k, smem.kv_full(), kEvictFirst,
                  c * C.kChunkColumns, work.first_key, work.kv_head, work.batch);
    const auto load_v = [&] {
#pragma unroll
      for (int c = 0; c < C.v_chunks(); ++c)
        tma_load_4d(smem.v() + c * C.key_chunk_bytes(), params.v, smem.kv_full(), kEvictFirst,
                    c * C.kChunkColumns, work.first_key, work.kv_head, work.batch);
    };
    bool first = true;
    work.for_each([&](int head, int m, bool) {
      const i64 row = work.scratch_row(params.scratch, head, m);
      const int q_stage = q_ring.stage, do_stage = do_ring.stage;
      mbarrier_wait(smem.q_empty(q_stage), q_ring.parity ^ 1);
      mbarrier_arrive_expect(smem.q_full(q_stage), C.q_bytes() + C.stats_bytes());
#pragma unroll
      for (int c = 0; c < C.qk_chunks(); ++c)
        tma_load_4d(smem.q(q_stage) + c * C.row_chunk_bytes(), params.q, smem.q_full(q_stage),
                    kEvictLast, c * C.kChunkColumns, m * C.block_m, head, work.batch);
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
                    smem.do_full(do_stage), kEvictLast, c * C.kChunkColumns, m * C.block_m, head,
                    work.batch);
      bulk_load(smem.delta(do_stage), params.scratch.delta + row, C.stats_bytes(),
                smem.do_full(do_stage));
      do_ring.advance();
    });
  }

  // ---- 2. Adder: one thread, which adds each tile's dQ to the sums in global memory ----

  ATTNFORGE_DEVICE static void add_dq(const Params& params, const Shared& smem) {
    const Work work(params);
    u32 parity = 0;
    work.for_each([&](int head, int m, bool) {
      float* const sums = params.scratch.dq_sums +
                          work.scratch_row(params.scratch, head, m) * C.dq_columns();
#pragma unroll
      for (int w = 0; w < C.warpgroups; ++w) {
        mbarrier_wait(smem.dq_full(w), parity);
#pragma unroll
        for (int part = w; part < C.dq_blocks() * C.dq_sharers(); part += C.warpgroups)
          bulk_add(sums + part * (C.dq_part_bytes() / 4), smem.dq(part), C.dq_part_bytes());
        bulk_commit();
        bulk_wait_read<0>();
        mbarrier_arrive(smem.dq_empty(w));
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
    const float scale_log2;
    Ring<C.q_stages> q_ring;
    Ring<C.do_stages> do_ring;
    Ring<C.ds_stages> ds_ring;
    u32 dq_parity = 0;
    float dk[kDkFragments][4];
    float dv[kDvFragments][4];

    // Of a query tile. Locals of the loop: as members they would be kept from tile to tile.
    using Scores = float[kScoreFragments][4];    // scores, then probabilities; or their gradients
    using Rounded = u32[kScoreFragments / 2][4];  // as operand A
    using DqParts = float[C.dq_own()][kDqFragments][4];

    ATTNFORGE_DEVICE Consumer(const Params& kernel_params, Shared shared, int index)
        : params(kernel_params),
          p(kernel_params.fwd),
          smem(shared),
          warpgroup(index),
          scale_log2(p.softmax_scale * 1.4426950408889634f) {}

    ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
    ATTNFORGE_DEVICE static int warp() { return thread_index() / 32 % 4; }
    /// This lane's first key among the block's.
    ATTNFORGE_DEVICE int lane_key() const {
      return warpgroup * 64 + warp() * 16 + MmaFragment::row(lane());
    }
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
      issue_transposed<C.head_dim>(s, smem.k(), smem.q(q_ring.stage));
    }
    ATTNFORGE_DEVICE void issue_dp(Scores& dp) {
      issue_transposed<C.head_dim_v>(dp, smem.v(), smem.dout(do_ring.stage));
    }
    /// sums += a (64 keys x query rows, in registers) x (query rows of `rows`).
    template <class Product, int kFragments>
    ATTNFORGE_DEVICE void issue_sums(float (&sums)[kFragments][4],
                                     Rounded& a, u32 rows) {
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
    /// Whether there is such a part of dQ. Known to the compiler where all warpgroups have as many.
    ATTNFORGE_DEVICE static bool has_dq_part(int part) {
      constexpr int kParts = C.dq_blocks() * C.dq_sharers();
      return kParts % C.warpgroups == 0 || part < kParts;
    }
    /// dQ, transposed: (64 columns of K) x (query rows of dS), of this warpgroup's parts.
    ATTNFORGE_DEVICE void issue_dq(DqParts& dq) {
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) {
        const int part = warpgroup + i * C.warpgroups;
        if (!has_dq_part(part)) break;
        const int block = part / C.dq_sharers(), share = part % C.dq_sharers();
        const u64 a = smem_descriptor<C.kSwizzle, C.key_chunk_bytes(), 8 * C.kSwizzle>(
            smem.k() + block * C.key_chunk_bytes());
        const u64 b = smem_descriptor<C.kSwizzle, 16, 8 * C.kSwizzle>(
            smem.ds(ds_ring.stage) + share * C.dq_rows() * C.kSwizzle);
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

    ATTNFORGE_DEVICE void probabilities(const Work& work, int m, Scores& s, Rounded& p16) {
      if (work.walk.masked(m)) {
        const TransposedScores<Scores> view{s, m * C.block_m, work.first_key + lane_key()};
        Pieces::Mask::apply(view, work);
      }
      const u32 lse = smem.lse(q_ring.stage) + MmaFragment::column(lane()) * 4;
#pragma unroll
      for (int j = 0; j < kScoreFragments; ++j) {
        float l[2];
        load_shared_floats(l, lse + j * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) s[j][c] = exp2_approx(fmaf(s[j][c], scale_log2, -l[c % 2]));
      }
      round(p16, s);
    }
    ATTNFORGE_DEVICE void gradients(const Scores& s, Scores& dp, Rounded& ds16) {
      const u32 delta = smem.delta(do_ring.stage) + MmaFragment::column(lane()) * 4;
#pragma unroll
      for (int j = 0; j < kScoreFragments; ++j) {
        float d[2];
        load_shared_floats(d, delta + j * 32);
#pragma unroll
        for (int c = 0; c < 4; ++c) dp[j][c] = s[j][c] * (dp[j][c] - d[c % 2]);
      }
      round(ds16, dp);
    }
    /// Two fragments of 16 keys x 8 queries to one of operand A.
    ATTNFORGE_DEVICE static void round(Rounded& to, const Scores& from) {
#pragma unroll
      for (int j = 0; j < kScoreFragments / 2; ++j)
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const auto& f = from[2 * j + w / 2];
          to[j][w] = pack2<C.dtype>(f[w % 2 * 2], f[w % 2 * 2 + 1]);
        }
    }
    /// dS to shared memory: rows of queries, this warpgroup's chunk of keys.
    ATTNFORGE_DEVICE void store_ds(const Rounded& ds16) const {
      const u32 chunk = smem.ds(ds_ring.stage) + warpgroup * C.row_chunk_bytes();
      // Matrices: keys 0-7 and 8-15 of queries 0-7, then of queries 8-15.
      const int row = lane() % 8 + lane() / 16 * 8;
      const u32 at = chunk + row * C.kSwizzle + ((warp() * 2 + lane() / 8 % 2) ^ (row % 8)) * 16;
#pragma unroll
      for (int j = 0; j < kScoreFragments / 2; ++j)
        stmatrix_x4_trans(at + j * 16 * C.kSwizzle, ds16[j]);
    }
    ATTNFORGE_DEVICE void store_dq(const DqParts& dq) {
      mbarrier_wait(smem.dq_empty(warpgroup), dq_parity ^ 1);
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) {
        const int part = warpgroup + i * C.warpgroups;
        if (!has_dq_part(part)) break;
        const u32 at = smem.dq(part) + thread_index() % 128 * 16;
#pragma unroll
        for (int j = 0; j < kDqFragments; ++j) store_shared(at + j * 2048, dq[i][j]);
      }
      fence_proxy_async();
      __syncwarp();
      release(smem.dq_full(warpgroup));
      dq_parity ^= 1;
    }

    ATTNFORGE_DEVICE void await_q() const {
      mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
    }
    ATTNFORGE_DEVICE void await_do() const {
      mbarrier_wait(smem.do_full(do_ring.stage), do_ring.parity);
    }
    ATTNFORGE_DEVICE void release_q() {
      release(smem.q_empty(q_ring.stage));
      q_ring.advance();
    }
    ATTNFORGE_DEVICE void release_do() {
      release(smem.do_empty(do_ring.stage));
      do_ring.advance();
    }
    ATTNFORGE_DEVICE static void await_consumers() { named_barrier_wait(1, kConsumers); }

    // -- A query tile --

    /// dK and dV of a tile, then dQ, whose dS comes from all warpgroups.
    ATTNFORGE_DEVICE void attend(const Work& work, int m) {
      Scores s, dp;
      Rounded p16, ds16;
      DqParts dq;
      await_q();
      issue_scores(s);
      await_do();
      issue_dp(dp);
      wgmma_wait<1>();
      pin(s);
      probabilities(work, m, s, p16);
      wgmma_wait<0>();
      pin(dp);
      gradients(s, dp, ds16);
      if constexpr (C.ds_stages == 1) await_consumers();  // all have read the dS before
      store_ds(ds16);
      fence_proxy_async();
      issue_sums<Dv>(dv, p16, smem.dout(do_ring.stage));
      await_consumers();
      issue_dq(dq);
      issue_sums<Dk>(dk, ds16, smem.q(q_ring.stage));
      wgmma_wait<1>();  // all but dK
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) pin(dq[i]);
      pin(dv);
      pin(p16);
      release_do();
      ds_ring.advance();
      store_dq(dq);
      wgmma_wait<0>();
      pin(dk);
      pin(ds16);
      release_q();
    }

    /// As attend(), with products of the next tile behind those of this one: its scores, and with
    /// 2 tiles ahead its dP, too. In flight before: those of this tile. After the last tile come
    /// products of whatever lies there, which nobody reads: a branch around them would make the
    /// compiler wait for each product.
    ATTNFORGE_DEVICE void attend_ahead(const Work& work, int m, bool last, Scores& s, Scores& dp) {
      Rounded p16, ds16;
      DqParts dq;
      // Of what is in flight over the loop's end the compiler wants to know nothing but that all
      // of it is waited for.
      wgmma_wait<0>();
      pin(s);
      if constexpr (C.ahead == 1) {
        await_do();
        issue_dp(dp);
      }
      probabilities(work, m, s, p16);
      wgmma_wait<0>();
      pin(dp);
      gradients(s, dp, ds16);
      if constexpr (C.ds_stages == 1) await_consumers();
      store_ds(ds16);
      fence_proxy_async();
      issue_sums<Dv>(dv, p16, smem.dout(do_ring.stage));
      issue_sums<Dk>(dk, ds16, smem.q(q_ring.stage));
      await_consumers();
      issue_dq(dq);
      wgmma_wait<1>();  // all but dQ
      pin(dv);
      pin(dk);
      pin(p16);
      pin(ds16);
      release_do();
      release_q();
      ds_ring.advance();
      if (!last) await_q();
      issue_scores(s);
      wgmma_wait<1>();
#pragma unroll
      for (int i = 0; i < C.dq_own(); ++i) pin(dq[i]);
      if constexpr (C.ahead == 2) {
        if (!last) await_do();
        issue_dp(dp);
      }
      store_dq(dq);
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
        if constexpr (C.ahead == 0) {
          work.for_each([&](int, int m, bool) { attend(work, m); });
        } else {
          Scores s, dp;
          await_q();
          issue_scores(s);
          if constexpr (C.ahead == 2) {
            await_do();
            issue_dp(dp);
          }
          work.for_each(
              [&](int, int m, bool last) { attend_ahead(work, m, last, s, dp); });
          wgmma_wait<0>();
          pin(s);
          pin(dp);
        }
      }
      store(work);
    }

    // -- dK and dV --

    ATTNFORGE_DEVICE void store(const Work& work) {
      store_tensor(work, params.dk, dk, p.softmax_scale);
      store_tensor(work, params.dv, dv, 1.0f);
    }
    template <int kFragments>
    ATTNFORGE_DEVICE void store_tensor(const Work& work, const TensorRef& to,
                                       const float (&sums)[kFragments][4], float factor) {
      const int key = work.first_key + lane_key(), quad_lane = lane() % 4;
      const i64 at = work.lengths.batch() * to.stride_batch +
                     (work.lengths.kv_begin() + key) * to.stride_row +
                     work.kv_head * to.stride_head;
      u16* const row = static_cast<u16*>(to.data) + at;
      store_row<C.dtype, 0, 16, kFragments>(sums, factor, row, key < work.lengths.kv(), quad_lane);
      store_row<C.dtype, 1, 16, kFragments>(sums, factor, row + 8 * to.stride_row,
                                            key + 8 < work.lengths.kv(), quad_lane);
    }
  };

  // ---- 4. Roles ----

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(1024) u8 shared_memory[];
    const Shared smem{smem_address(shared_memory)};
    if (threadIdx.x == 0) smem.init_barriers();
    __syncthreads();
    const int warpgroup = from_lane_0(threadIdx.x / 128);
    if (warpgroup == C.warpgroups) {
      registers_shrink<C.producer_registers()>();
      if (threadIdx.x == kConsumers) load(params, smem);
      if (threadIdx.x == kConsumers + 32) add_dq(params, smem);
    } else {
      registers_grow<C.consumer_registers()>();
      Consumer(params, smem, warpgroup).run();
    }
  }
};

}  // namespace attnforge
