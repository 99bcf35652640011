// producer.cuh - the role of fwd_wgmma_sm90a that loads: one thread, which keeps the rings of Q, K
// and V full by TMA. Gathered tiles: warps, whose lanes have a group of keys, or a box, each.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/shared.cuh"
#include "fwd_wgmma_sm90a/work.cuh"
#include "hopper/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aProducer {
  using Shared = FwdWgmmaSm90aShared<C>;
  using Work = FwdWgmmaSm90aWork<C, Pieces, Params>;
  using Keys = typename Pieces::Keys;
  static constexpr int kThreads = Keys::kThreads;  // that have the role
  static constexpr bool kByWarp = kThreads > 1;

  const Params& params;
  const Shared smem;
  Ring<C.k_stages> k_ring;
  Ring<C.v_stages> v_ring;
  Ring<C.q_stages> q_ring;
  const u32* bits;  // C.brings_bits(): those of the query tile's rows, in group 0

  ATTNFORGE_DEVICE FwdWgmmaSm90aProducer(const Params& p, Shared s) : params(p), smem(s) {}

  /// Whether the first keys come before Q, whose one buffer consumers may still read.
  ATTNFORGE_DEVICE static constexpr bool keys_first() { return C.q_stages == 1; }
  /// Whether this thread does what one thread does.
  ATTNFORGE_DEVICE static bool leads() { return !kByWarp || thread_index() % 128 == 0; }

  // ---- A tile of Q, K or V ----

  /// Waits on Q's barriers are the leader's alone: consumers may give a buffer back before the
  /// other warps come here, whose wait for the phase before would then have no end.
  ATTNFORGE_DEVICE void load_q(const Work& work, int tile) {
    if (leads()) issue_q(work, tile, q_ring.stage);
    q_ring.advance();
  }
  ATTNFORGE_DEVICE void issue_q(const Work& work, int tile, int stage) {
    mbarrier_wait(smem.q_empty(stage), q_ring.parity ^ 1);
    if constexpr (Work::kTells) store_shared(smem.tile(stage), tile);
    if constexpr (Work::kTellsAll) work.store(smem.tile(stage) + 4);
    mbarrier_arrive_expect(smem.q_full(stage),
                           C.q_boxes() * C.qk_chunks() * C.box_rows() * C.swizzle);
#pragma unroll
    for (int w = 0; w < C.q_boxes(); ++w)
#pragma unroll
      for (int c = 0; c < C.qk_chunks(); ++c)
        tma_load_5d(
            smem.q(stage, w) + c * C.q_chunk_bytes(), params.q, smem.q_full(stage), kEvictFirst,
            c * C.chunk_columns(), 0,
            work.queries.lengths.q_begin() + Work::Tile::query_of(work.queries.first_row + w * 64),
            work.queries.head, work.queries.lengths.batch());
  }
  /// `n` is what Keys ask of a tile: its number, or a lane's group of keys, or its box.
  template <class KeyTile>
  ATTNFORGE_DEVICE void load_k(const Keys& keys, const KeyTile& n) {
    mbarrier_wait(smem.k_empty(k_ring.stage), k_ring.parity ^ 1);
    if constexpr (Work::kListed) {
      if (thread_index() % 32 < C.key_groups())
        store_shared_8(smem.groups(k_ring.stage) + thread_index() % 32 * 8, n.number, n.rows);
      __syncwarp();
    }
    int bytes = C.k_bytes();
    if constexpr (C.brings_bits())
      bytes += Pieces::Mask::PairRule::template load<C>(smem, k_ring.stage, bits, n);
    if (leads()) mbarrier_arrive_expect(smem.k_full(k_ring.stage), bytes);
    if constexpr (kByWarp) __syncwarp();
    keys.template load<C.qk_chunks()>(params.k, smem.k(k_ring.stage), smem.k_full(k_ring.stage), n);
    k_ring.advance();
  }
  template <class KeyTile>
  ATTNFORGE_DEVICE void load_v(const Keys& keys, const KeyTile& n) {
    mbarrier_wait(smem.v_empty(v_ring.stage), v_ring.parity ^ 1);
    if (leads()) mbarrier_arrive_expect(smem.v_full(v_ring.stage), C.v_bytes());
    if constexpr (kByWarp) __syncwarp();
    keys.template load<C.v_chunks()>(params.v, smem.v_source(v_ring.stage),
                                     smem.v_full(v_ring.stage), n);
    v_ring.advance();
  }

  // ---- A query tile ----

  /// In the order in which consumers want them: K of a tile before V of the one before it.
  template <class AskForNext>
  ATTNFORGE_DEVICE void load_in_order(const Keys& keys, const Work& work, int tile,
                                      const AskForNext& ask_for_next) {
    load_k(keys, work.walk.tile(0));
    if constexpr (keys_first()) load_q(work, tile);
    const int last = work.walk.count() - 1;
    for (int i = 0; i < last; ++i) {
      if (i == last - 1) ask_for_next();
      load_k(keys, work.walk.tile(i + 1));
      load_v(keys, work.walk.tile(i));
    }
    if (last == 0) ask_for_next();
    load_v(keys, work.walk.tile(last));
  }
  /// ask_for_next() is called once, before the last keys are loaded.
  template <class AskForNext>
  ATTNFORGE_DEVICE void load(const Work& work, int tile, const AskForNext& ask_for_next) {
    const Keys keys(work.queries);
    if constexpr (C.brings_bits())
      bits = Pieces::Mask::PairRule::words_of(work.queries, work.queries.first_row, 0);
    if (!keys_first() || work.empty()) load_q(work, tile);
    if (work.empty())
      ask_for_next();
    else if constexpr (Keys::kAhead)
      load_ahead(*this, keys, work, tile, ask_for_next);  // of parts/key_lists
    else
      load_in_order(keys, work, tile, ask_for_next);
  }

  // ---- All query tiles of the block ----

  ATTNFORGE_DEVICE int tile_after(int tile) const {
    if constexpr (C.grid == kGridPlain) return Work::num_tiles(params);
    if constexpr (C.grid == kGridStatic) return tile + int(gridDim.x);
    int given = 0;
    if (leads()) given = atomicAdd(&params.counters->given, 1);
    return gridDim.x + (kByWarp ? from_lane_0(given) : given);
  }
  /// Past the last: the consumers end.
  ATTNFORGE_DEVICE void tell_end(int tile) const {
    if (!leads()) return;
    mbarrier_wait(smem.q_empty(q_ring.stage), q_ring.parity ^ 1);
    store_shared(smem.tile(q_ring.stage), Work::kTellsAll ? Work::kNoTile : tile);
    mbarrier_arrive(smem.q_full(q_ring.stage));
  }
  /// The last block leaves the counters as it found them, and only then says that it did.
  ATTNFORGE_DEVICE void put_counters_back() const {
    TileCounters& counters = *params.counters;
    const u32 ended = atomicAdd(&counters.ended, 1);
    if (ended < gridDim.x - 1) return;
    counters.given = 0;
    counters.ended = 0;
    __threadfence();
    atomicAdd(&counters.runs, 1u);
  }

  ATTNFORGE_DEVICE void run() {
    Work::Order::begin();
    if constexpr (Work::kShares) {  // each warp that loads goes through the block's by itself
      for (auto share = Work::Order::share(); share.more(); share.advance(params))
        load(Work::of_share(params, share), 0, [] {});
      tell_end(0);
    } else {
      run_tiles();
    }
  }
  ATTNFORGE_DEVICE void run_tiles() {
    int tile = int(blockIdx.x);
    while (tile < Work::num_tiles(params)) {
      const Work work(params, tile);
      const bool none = Work::Order::kMayBeEmpty &&
                        work.queries.first_row >= work.queries.end_row();
      // Asked for when its answer comes just in time: a tile that is taken sooner waits for this
      // one's end while other blocks go without.
      int upcoming;
      const auto ask_for_next = [&] { upcoming = tile_after(tile); };
      if (none)
        ask_for_next();
      else
        load(work, tile, ask_for_next);
      tile = upcoming;  // NOLINT(clang-analyzer-core.uninitialized.Assign): load() asks once
    }
    if constexpr (Work::kTells) tell_end(tile);
    if constexpr (C.grid == kGridDynamic)
      if (leads()) put_counters_back();
  }
};

}  // namespace attnforge
