// feed.cuh - the warpgroup of bwd_wgmma_sm90a that does not compute: a thread loads, others add dQ.
#pragma once

#include "backward/turns.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "hopper/ring.cuh"
#include "ptx/bulk.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aFeed {
  using Shared = BwdWgmmaSm90aShared<C>;
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;
  using KeyTiles = BwdWgmmaSm90aKeyTiles<C, Pieces, Params>;

  // ---- 1. Producer: one thread, which keeps the rings full ----

  struct Rings {
    Ring<C.q_stages> q;
    Ring<C.do_stages> dout;
  };

  ATTNFORGE_DEVICE static void load(const Params& params, const Shared& smem,
                                    const KeyTiles& key_tiles) {
    Rings rings;
    if constexpr (!C.persistent()) {
      load_tile(params, smem, key_tiles.work, rings, 0);
      set_zeros(params, smem, key_tiles.work);
    } else {
      const int tiles = Work::all_tiles(params);
      // Without queries nothing has set the count to 0, and there are as many blocks as tiles.
      const auto ask = [&](int uncounted) {
        return from_lone_lane_0(params.given != nullptr ? atomicAdd(params.given, 1) : uncounted);
      };
      // A tile is asked for when the one before is all loaded, not sooner: others wait for its
      // turns.
      u32 number = 0;
#pragma unroll 1
      for (int tile = ask(block_index()); tile < tiles; tile = ask(tiles))
        load_tile(params, smem, Work(params, tile), rings, number++);
      tell(smem, number, tiles, 0);
    }
  }
  /// That K and V of a key tile are `bytes` on their way, once nobody needs those before.
  ATTNFORGE_DEVICE static void tell(const Shared& smem, u32 number, int tile, int bytes) {
    if constexpr (C.persistent()) {
      if (number > 0) mbarrier_wait(smem.kv_empty(), (number - 1) % 2);
      store_shared(smem.told(), tile);
    }
    mbarrier_arrive_expect(smem.kv_full(), bytes);
  }

  /// Number `number` of this block.
  ATTNFORGE_DEVICE static void load_tile(const Params& params, const Shared& smem, const Work& work,
                                         Rings& rings, u32 number) {
    const auto& keys = work.keys;
    Ring<C.q_stages>& q_ring = rings.q;
    Ring<C.do_stages>& do_ring = rings.dout;
    if (work.tiles() <= 0) {
      if constexpr (C.persistent()) tell(smem, number, work.tile, 0);
      return;
    }
    const auto load_k = [&] {
      tell(smem, number, work.tile, C.k_bytes() + C.v_bytes());
#pragma unroll
      for (int c = 0; c < C.qk_chunks(); ++c)
        tma_load_4d(smem.k() + c * C.key_chunk_bytes(), params.k, smem.kv_full(), kEvictFirst,
                    c * C.chunk_columns(), keys.lengths.kv_begin() + keys.first_key, keys.kv_head,
                    keys.lengths.batch());
    };
    const auto load_v = [&] {
#pragma unroll
      for (int c = 0; c < C.v_chunks(); ++c)
        tma_load_4d(smem.v() + c * C.key_chunk_bytes(), params.v, smem.kv_full(), kEvictFirst,
                    c * C.chunk_columns(), keys.lengths.kv_begin() + keys.first_key, keys.kv_head,
                    keys.lengths.batch());
    };
    // A later tile's first Q and dO come before its K and V, whose memory is still in use.
    const bool later = number > 0;
    if (!later) load_k();
    bool first = true;
    work.for_each([&](const QueryPlace& place) {
      const i64 row = work.scratch_row(params.scratch, place);
      const int query = keys.lengths.q_begin() + place.m * C.block_m;
      const int q_stage = q_ring.stage, do_stage = do_ring.stage;
      mbarrier_wait(smem.q_empty(q_stage), q_ring.parity ^ 1);
      mbarrier_arrive_expect(smem.q_full(q_stage), C.q_bytes() + C.stats_bytes());
#pragma unroll
      for (int c = 0; c < C.qk_chunks(); ++c)
        tma_load_4d(smem.q(q_stage) + c * C.row_chunk_bytes(), params.q, smem.q_full(q_stage),
                    kEvictLast, c * C.chunk_columns(), query, place.head, keys.lengths.batch());
      bulk_load(smem.lse(q_stage), params.scratch.lse_log2 + row, C.stats_bytes(),
                smem.q_full(q_stage));
      q_ring.advance();
      if (first && !later) load_v();
      mbarrier_wait(smem.do_empty(do_stage), do_ring.parity ^ 1);
      mbarrier_arrive_expect(smem.do_full(do_stage), C.do_bytes() + C.stats_bytes());
#pragma unroll
      for (int c = 0; c < C.v_chunks(); ++c)
        tma_load_4d(smem.dout(do_stage) + c * C.row_chunk_bytes(), params.dout,
                    smem.do_full(do_stage), kEvictLast, c * C.chunk_columns(), query, place.head,
                    keys.lengths.batch());
      bulk_load(smem.delta(do_stage), params.scratch.delta + row, C.stats_bytes(),
                smem.do_full(do_stage));
      do_ring.advance();
      if (first && later) {
        load_k();
        load_v();
      }
      first = false;
    });
  }
  /// A warp of its own does this, so the next tile's loads need not wait for it.
  ATTNFORGE_DEVICE static void set_all_zeros(const Params& params, const Shared& smem,
                                             const KeyTiles& key_tiles) {
    key_tiles.template for_each<false>([&](const Work& work) {
      mbarrier_arrive(smem.kv_empty());  // the number is known
      set_zeros(params, smem, work);
    });
  }
  /// While the last tiles are computed: this block's share of the sums of a head that comes later.
  ATTNFORGE_DEVICE static void set_zeros(const Params& params, const Shared& smem,
                                         const Work& work) {
    if constexpr (!C.zeros_ahead) return;
    const int head = work.place.head + params.zeros.lag;
    if (head >= params.order.heads) return;
    constexpr int kTileBytes = C.block_m * C.dq_columns() * 4;
    int tiles = params.scratch.rows_padded / C.block_m * work.keys.group();
    i64 first = i64(head) * tiles;
    if constexpr (C.splits_groups()) {
      const int kv_head = quotient(head, params.splits.count);
      const int before = (head - kv_head * params.splits.count) * params.splits.heads;
      const int tiles_of_head = params.scratch.rows_padded / C.block_m;
      first = (i64(kv_head) * work.keys.group() + before) * tiles_of_head;
      tiles = min(params.splits.heads, work.keys.group() - before) * tiles_of_head;
    }
    char* const sums = reinterpret_cast<char*>(params.scratch.dq_sums) + first * kTileBytes;
#pragma unroll 1
    for (int tile = work.place.m_block; tile < tiles; tile += Work::tiles_of_head(params))
#pragma unroll 1
      for (int from = 0; from < kTileBytes; from += C.kZeroBytes)
        bulk_store(sums + i64(tile) * kTileBytes + from, smem.zeros(),
                   min(C.kZeroBytes, kTileBytes - from));
    bulk_commit();
    bulk_wait<0>();
    pass_turn(params.zeros.cleared + work.place.head);
  }

  // ---- 2. Adders: a thread for each warpgroup ----

  /// Adds the warpgroup's parts of each tile's dQ to the sums in global memory. In order, the first
  /// of a tile stores them: nobody sets these sums to zeros.
  ATTNFORGE_DEVICE static void add_dq(const Params& params, const Shared& smem,
                                      const KeyTiles& key_tiles, int w) {
    Ring<C.dq_stages> ring;
    key_tiles.template for_each<false>([&](const Work& work) {
      if constexpr (C.persistent()) mbarrier_arrive(smem.kv_empty());  // the number is known
      add_dq_of(params, smem, work, w, ring);
      bulk_wait<0>();
      pass_turn(params.added + work.kv_head(params));
    });
  }
  /// Adds dQ of a key tile.
  ATTNFORGE_DEVICE static void add_dq_of(const Params& params, const Shared& smem, const Work& work,
                                         int w, Ring<C.dq_stages>& ring) {
    work.await_zeros(params);
    work.for_each([&](const QueryPlace& place) {
      float* const sums = work.dq_sums(params.scratch, place) +
                          w * C.dq_own() * (C.dq_part_bytes() / 4);
      int* const turns = params.dq_turns + work.tile_number(params.scratch, place) * C.warpgroups +
                         w;
      const int turn = C.adds_in_order() ? work.turn(place) : 0;
#pragma unroll
      for (int round = 0; round < C.dq_rounds; ++round, ring.advance()) {
        float* const to = sums + round * C.dq_held() * (C.dq_part_bytes() / 4);
        const int bytes = C.dq_parts_of(round) * C.dq_part_bytes();
        if (C.adds_in_order() && round == 0) await_turn(turns, turn);  // before there is a tile
        mbarrier_wait(smem.dq_full(w, ring.stage), ring.parity);
        const u32 from = smem.dq(w, ring.stage, 0);
        if (C.adds_in_order() && turn == 0) {
          bulk_store(to, from, bytes);
        } else {
          bulk_add(to, from, bytes);
        }
        bulk_commit();
        bulk_wait_read<0>();
        mbarrier_arrive(smem.dq_empty(w, ring.stage));
      }
      if constexpr (C.adds_in_order()) {
        bulk_wait<0>();
        pass_turn(turns);
      }
    });
  }
};

}  // namespace attnforge
