// kernel.cuh - attention forward for Hopper: one warp issues TMA loads into rings of K and V tiles,
// warpgroups of 64 query rows each compute with wgmma; the scores of the next tile are in flight
// with the output of this one, and the softmax runs under that (FlashAttention-3, Shah et al.
// 2024), with lazy rescaling.
#pragma once

#include "base.cuh"
#include "fwd_wgmma_sm90a/config.h"
#include "ptx/convert.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/proxy.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"
#include "ptx/warpgroup.cuh"
#include "ptx/wgmma.cuh"
#include "tile/fragment_scores.cuh"
#include "tile/key_groups.cuh"
#include "tile/query_tile.cuh"
#include "tile/ring.cuh"
#include "tile/softmax.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// Pieces: DenseTmaPieces<C> (pieces/dense_tma.cuh) or what an entry makes of it. Params is the
/// kernel's argument: FwdWgmmaSm90aParams, or what an entry derives from it for its pieces.
template <FwdWgmmaSm90aConfig C, class Pieces, class ParamsType = FwdWgmmaSm90aParams>
struct FwdWgmmaSm90a {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  using Params = ParamsType;
  using Tile = QueryTile<C.pack_gqa, typename Pieces::Lengths>;
  using Walk = typename Pieces::Walk;
  using Output = typename Pieces::template Output<C.dtype, 16, C.lse != 0>;

  static constexpr int kScoreFragments = C.block_n / 8;  // of 8 keys
  static constexpr int kOutFragments = C.head_dim_v / 8;
  static constexpr int kDepthSteps = ceil_div(C.head_dim, 16);
  static constexpr int kConsumerWarps = 4 * C.warpgroups;
  // Jobs on Q's rows, by the consumers that read them, and on tiles of K and V, by the other warps
  // of the producer's warpgroup. These need the number of the query tile, and with kGridDynamic
  // find it beside Q.
  using QJob = typename Pieces::QJob;
  using KJob = typename Pieces::KJob;
  using VJob = typename Pieces::VJob;
  static constexpr int kWorkerWarps = KJob::kNone && VJob::kNone ? 0 : 3;
  static_assert(C.k_job() == !KJob::kNone && VJob::kNone, "the config has the jobs' barriers");
  // The producer tells the others which query tile comes with Q: its number, where blocks ask for
  // one; all of it, where that takes loads from global memory.
  static constexpr bool kListed = Walk::kListed;  // key tiles are gathered from a list
  // A warpgroup leaves out the key tiles that none of its rows sees, but for its turns: under
  // windows, those at both ends of the block's walk.
  static constexpr bool kLeavesOut = !kListed && C.warpgroups > 1 &&
                                     (C.right_bound || C.left_bound);
  static constexpr bool kTellsAll = Tile::Lengths::kWords > 0 || kListed;
  static constexpr bool kTells = C.grid == kGridDynamic || kTellsAll;
  static_assert(kTellsAll || !Pieces::Order::kMayBeEmpty, "only the producer leaves tiles out");
  static constexpr int kNoTile = 0x7fffffff;
  static constexpr int kTileReaders = kConsumerWarps + (kTells ? kWorkerWarps : 0);
  static_assert(!kTellsAll || kWorkerWarps == 0, "workers find a tile by its number");

  // ---- Shared memory and barriers, as 32-bit addresses ----

  struct Shared {
    u32 base;

    ATTNFORGE_DEVICE u32 q(int stage, int warpgroup) const {
      return base + stage * C.q_bytes() + warpgroup * C.qk_chunks() * C.q_chunk_bytes();
    }
    ATTNFORGE_DEVICE u32 k(int stage) const { return base + C.k_begin() + stage * C.k_bytes(); }
    ATTNFORGE_DEVICE u32 v(int stage) const { return base + C.v_begin() + stage * C.v_bytes(); }
    // Full: TMA has written a buffer. Empty: every consumer warp has read it.
    ATTNFORGE_DEVICE u32 k_full(int stage) const { return barrier(stage); }
    ATTNFORGE_DEVICE u32 k_empty(int stage) const { return barrier(C.k_stages + stage); }
    ATTNFORGE_DEVICE u32 v_full(int stage) const { return barrier(2 * C.k_stages + stage); }
    ATTNFORGE_DEVICE u32 v_empty(int stage) const {
      return barrier(2 * C.k_stages + C.v_stages + stage);
    }
    ATTNFORGE_DEVICE u32 q_full(int stage) const {
      return barrier(2 * (C.k_stages + C.v_stages) + stage);
    }
    ATTNFORGE_DEVICE u32 q_empty(int stage) const { return q_full(C.q_stages + stage); }
    /// The workers have done their job on the tile that TMA has written. Consumers wait for this.
    ATTNFORGE_DEVICE u32 k_ready(int stage) const {
      return KJob::kNone ? k_full(stage) : q_full(2 * C.q_stages + stage);
    }
    ATTNFORGE_DEVICE u32 v_ready(int stage) const {
      return VJob::kNone ? v_full(stage)
                         : q_full(2 * C.q_stages + (KJob::kNone ? 0 : C.k_stages) + stage);
    }
    /// kTells: the query tile that comes with Q in this stage.
    ATTNFORGE_DEVICE u32 tile(int stage) const {
      return base + C.tiles_begin() + C.tile_bytes() * stage;
    }

    /// kListed: the groups of the key tile in this stage.
    ATTNFORGE_DEVICE u32 groups(int stage) const {
      return base + C.groups_begin() + 8 * C.key_groups() * stage;
    }

    ATTNFORGE_DEVICE u32 barrier(int index) const { return base + C.barriers_begin() + 8 * index; }
    ATTNFORGE_DEVICE void init_barriers() const {
      for (int i = 0; i < C.k_stages; ++i) {
        mbarrier_init(k_full(i), 1);
        mbarrier_init(k_empty(i), kConsumerWarps);
      }
      for (int i = 0; i < C.v_stages; ++i) {
        mbarrier_init(v_full(i), 1);
        mbarrier_init(v_empty(i), kConsumerWarps);
      }
      for (int i = 0; i < C.q_stages; ++i) {
        mbarrier_init(q_full(i), 1);
        mbarrier_init(q_empty(i), kTileReaders);
      }
      if constexpr (!KJob::kNone)
        for (int i = 0; i < C.k_stages; ++i) mbarrier_init(k_ready(i), kWorkerWarps);
      if constexpr (!VJob::kNone)
        for (int i = 0; i < C.v_stages; ++i) mbarrier_init(v_ready(i), kWorkerWarps);
      mbarrier_init_fence();
    }
  };

  // ---- The work: query tiles ----

  struct Work {
    Tile queries;
    Walk walk;

    ATTNFORGE_DEVICE Work(const Tile& tile, const Walk& its_walk) : queries(tile), walk(its_walk) {}
    ATTNFORGE_DEVICE Work(const Params& params, const Tile& tile)
        : queries(tile),
          walk(Walk::of_rows(params, queries, C.block_n, queries.first_row, C.block_m())) {}
    ATTNFORGE_DEVICE Work(const Params& params, int tile)
        : Work(params, Tile(params, Pieces::Order::place(params, tile), C.block_m())) {}
    // As words in shared memory (kTellsAll).
    ATTNFORGE_DEVICE void store(u32 to) const {
      queries.store(to);
      if constexpr (kListed) walk.store(to + 4 * Tile::kWords);
    }
    ATTNFORGE_DEVICE static Work load(const Params& params, u32 from) {
      const Tile queries = Tile::load(params, from);
      if constexpr (kListed) return {queries, Walk::load(from + 4 * Tile::kWords)};
      return {params, queries};
    }
    /// Fully masked rows only: nothing to load, zeros to store.
    ATTNFORGE_DEVICE bool empty() const { return walk.count() == 0; }
  };

  ATTNFORGE_DEVICE static int num_tiles(const Params& params) {
    return Pieces::Order::tiles(params);
  }
  ATTNFORGE_DEVICE static int first_tile() { return blockIdx.x; }
  ATTNFORGE_DEVICE static int tile_step() { return gridDim.x; }
  /// The tile after `tile` (before the first: -1), unless the grid is kGridDynamic.
  ATTNFORGE_DEVICE static int following(const Params& params, int tile) {
    return tile < 0 ? first_tile() : C.grid == kGridPlain ? num_tiles(params) : tile + tile_step();
  }

  // ---- 1. Producer: one thread, which keeps the rings full. Gathered tiles: a warp, whose lanes
  // have a group of keys each, or a box of a page ----

  struct Producer {
    using Keys = typename Pieces::Keys;
    static constexpr bool kByWarp = Keys::kByWarp;
    const Params& params;
    const Shared smem;
    Ring<C.k_stages> k_ring;
    Ring<C.v_stages> v_ring;
    Ring<C.q_stages> q_ring;

    ATTNFORGE_DEVICE Producer(const Params& p, Shared s) : params(p), smem(s) {}

    /// Whether this thread does what one thread does.
    ATTNFORGE_DEVICE static bool leads() { return !kByWarp || thread_index() % 32 == 0; }

    ATTNFORGE_DEVICE int tile_after(int tile) const {
      if constexpr (C.grid == kGridPlain) return num_tiles(params);
      if constexpr (C.grid == kGridStatic) return tile + tile_step();
      int given = 0;
      if (leads()) given = atomicAdd(&params.counters->given, 1);
      return gridDim.x + (kByWarp ? from_lane_0(given) : given);
    }

    ATTNFORGE_DEVICE void load_q(const Work& work, int tile) {
      const int stage = q_ring.stage;
      mbarrier_wait(smem.q_empty(stage), q_ring.parity ^ 1);
      if (leads()) issue_q(work, tile, stage);
      q_ring.advance();
    }
    ATTNFORGE_DEVICE void issue_q(const Work& work, int tile, int stage) {
      if constexpr (kTells) store_shared(smem.tile(stage), tile);
      if constexpr (kTellsAll) work.store(smem.tile(stage) + 4);
      mbarrier_arrive_expect(smem.q_full(stage), C.q_bytes());
#pragma unroll
      for (int w = 0; w < C.warpgroups; ++w)
#pragma unroll
        for (int c = 0; c < C.qk_chunks(); ++c)
          tma_load_5d(
              smem.q(stage, w) + c * C.q_chunk_bytes(), params.q, smem.q_full(stage), kEvictFirst,
              c * C.chunk_columns(), 0,
              work.queries.lengths.q_begin() + Tile::query_of(work.queries.first_row + w * 64),
              work.queries.head, work.queries.lengths.batch());
    }
    /// `n` is what Keys ask of a tile: its number, or a lane's group of keys, or its box.
    template <class KeyTile>
    ATTNFORGE_DEVICE void load_k(const Keys& keys, const KeyTile& n) {
      mbarrier_wait(smem.k_empty(k_ring.stage), k_ring.parity ^ 1);
      if constexpr (kListed) {
        if (thread_index() % 32 < C.key_groups())
          store_shared_8(smem.groups(k_ring.stage) + thread_index() % 32 * 8, n.number, n.rows);
        __syncwarp();
      }
      if (leads()) mbarrier_arrive_expect(smem.k_full(k_ring.stage), C.k_bytes());
      if constexpr (kByWarp) __syncwarp();
      keys.template load<C.qk_chunks()>(params.k, smem.k(k_ring.stage), smem.k_full(k_ring.stage),
                                        n);
      k_ring.advance();
    }
    template <class KeyTile>
    ATTNFORGE_DEVICE void load_v(const Keys& keys, const KeyTile& n) {
      mbarrier_wait(smem.v_empty(v_ring.stage), v_ring.parity ^ 1);
      if (leads()) mbarrier_arrive_expect(smem.v_full(v_ring.stage), C.v_bytes());
      if constexpr (kByWarp) __syncwarp();
      keys.template load<C.v_chunks()>(params.v, smem.v(v_ring.stage), smem.v_full(v_ring.stage),
                                       n);
      v_ring.advance();
    }

    ATTNFORGE_DEVICE void run() {
      Pieces::Order::begin();
      int tile = first_tile();
      while (tile < num_tiles(params)) {
        const int upcoming = tile_after(tile);  // asked for a tile ahead: hides the latency
        const Work work(params, tile);
        if constexpr (Pieces::Order::kMayBeEmpty) {
          if (work.queries.first_row >= work.queries.end_row()) {
            tile = upcoming;
            continue;
          }
        }
        const Keys keys(work.queries);
        if (C.q_stages > 1 || work.empty()) load_q(work, tile);
        if constexpr (Keys::kAhead) {
          if (!work.empty()) load_ahead(keys, work, tile);
        } else if (!work.empty()) {
          load_k(keys, work.walk.tile(0));
          if constexpr (C.q_stages == 1) load_q(work, tile);
          const int last = work.walk.count() - 1;
          for (int i = 0; i < last; ++i) {
            load_k(keys, work.walk.tile(i + 1));
            load_v(keys, work.walk.tile(i));
          }
          load_v(keys, work.walk.tile(last));
        }
        tile = upcoming;
      }
      if constexpr (kTells) {
        mbarrier_wait(smem.q_empty(q_ring.stage), q_ring.parity ^ 1);
        // Past the last: the consumers end.
        if (leads()) {
          store_shared(smem.tile(q_ring.stage), kTellsAll ? kNoTile : tile);
          mbarrier_arrive(smem.q_full(q_ring.stage));
        }
      }
      if constexpr (C.grid == kGridDynamic)
        if (leads()) put_counters_back();
    }

    /// Gathered tiles. Their groups, or pages, come from global memory: asked for two tiles ahead.
    ATTNFORGE_DEVICE void load_ahead(const Keys& keys, const Work& work, int tile) {
      auto now = keys.of_tile(work.walk, 0), next = keys.of_tile(work.walk, 1);
      load_k(keys, now);
      if constexpr (C.q_stages == 1) load_q(work, tile);
      for (int i = 1; i < work.walk.count(); ++i) {
        const auto later = keys.of_tile(work.walk, i + 1);
        load_k(keys, next);
        load_v(keys, now);
        now = next;
        next = later;
      }
      load_v(keys, now);
    }

    /// The last block leaves the counters as it found them, and only then says that it did.
    ATTNFORGE_DEVICE void put_counters_back() {
      TileCounters& counters = *params.counters;
      const u32 ended = atomicAdd(&counters.ended, 1);
      if (ended < gridDim.x - 1) return;
      counters.given = 0;
      counters.ended = 0;
      __threadfence();
      atomicAdd(&counters.runs, 1u);
    }
  };

  // ---- 2. Workers: where there is a job on K or V, three warps that do it where the tiles lie
  // ----

  struct Worker {
    const Params& params;
    const Shared smem;
    Ring<C.k_stages> k_ring;
    Ring<C.v_stages> v_ring;
    Ring<C.q_stages> q_ring;

    ATTNFORGE_DEVICE Worker(const Params& p, Shared s) : params(p), smem(s) {}

    ATTNFORGE_DEVICE int await_tile(int tile) {
      if constexpr (C.grid != kGridDynamic) return following(params, tile);
      mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
      const int next = load_shared(smem.tile(q_ring.stage));
      __syncwarp();
      if (thread_index() % 32 == 0) mbarrier_arrive(smem.q_empty(q_ring.stage));
      q_ring.advance();
      return next;
    }

    /// Does the job on tile n of `ring`, at `tile`: between its arrival, `full`, and its use.
    template <class Job, int kStages>
    ATTNFORGE_DEVICE void work_on(const Tile& queries, int n, u32 tile, u32 full, u32 ready,
                                  Ring<kStages>& ring) {
      const Job job(params, queries, n, thread_index() / 32 - kConsumerWarps - 1, kWorkerWarps);
      job.prepare();
      mbarrier_wait(full, ring.parity);
      job.run(tile);
      fence_proxy_async();
      __syncwarp();
      if (thread_index() % 32 == 0) mbarrier_arrive(ready);
      ring.advance();
    }
    ATTNFORGE_DEVICE void work_on_k(const Work& work, int n) {
      const int stage = k_ring.stage;
      if constexpr (!KJob::kNone)
        work_on<KJob>(work.queries, n, smem.k(stage), smem.k_full(stage), smem.k_ready(stage),
                      k_ring);
    }
    ATTNFORGE_DEVICE void work_on_v(const Work& work, int n) {
      const int stage = v_ring.stage;
      if constexpr (!VJob::kNone)
        work_on<VJob>(work.queries, n, smem.v(stage), smem.v_full(stage), smem.v_ready(stage),
                      v_ring);
    }

    ATTNFORGE_DEVICE void run() {
      for (int tile = await_tile(-1); tile < num_tiles(params); tile = await_tile(tile)) {
        const Work work(params, tile);
        for (int i = 0; i < work.walk.count(); ++i) {  // in the order in which they arrive
          work_on_k(work, work.walk.tile(i));
          if (i > 0) work_on_v(work, work.walk.tile(i - 1));
        }
        if (!work.empty()) work_on_v(work, work.walk.tile(work.walk.count() - 1));
      }
    }
  };

  // ---- 3. Consumer: a warpgroup, 64 rows of the query tile ----

  struct Consumer {
    using Scores = Wgmma<C.dtype, C.block_n>;
    using Outputs = Wgmma<C.dtype, C.head_dim_v>;

    const Params& params;
    const FwdParams& p;
    const Shared smem;
    const int warpgroup;
    const float scale_log2;
    Ring<C.k_stages> k_ring;
    Ring<C.v_stages> v_ring;
    Ring<C.q_stages> q_ring;
    float o[kOutFragments][4];
    float s[kScoreFragments][4];
    u32 probs[kScoreFragments / 2][4];
    u32 q[C.q_in_regs ? kDepthSteps : 1][4];
    SoftmaxRows softmax;

    ATTNFORGE_DEVICE Consumer(const Params& kernel_params, Shared shared, int index)
        : params(kernel_params),
          p(kernel_params.fwd),
          smem(shared),
          warpgroup(index),
          scale_log2((Pieces::Score::kScaled ? 1.0f : p.softmax_scale) * 1.4426950408889634f) {}

    ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
    ATTNFORGE_DEVICE static int warp() { return thread_index() / 32 % 4; }
    ATTNFORGE_DEVICE static int lane_row() { return warp() * 16 + MmaFragment::row(lane()); }

    ATTNFORGE_DEVICE static void release(u32 empty) {
      if (lane() == 0) mbarrier_arrive(empty);
    }
    // Ping-pong: a warpgroup issues products while the others compute their softmax.
    ATTNFORGE_DEVICE void await_turn() const {
      if constexpr (C.pingpong) named_barrier_wait(1 + warpgroup, 256);
    }
    ATTNFORGE_DEVICE void pass_turn() const {
      if constexpr (C.pingpong)
        named_barrier_arrive(1 + (warpgroup + 1 == C.warpgroups ? 0 : warpgroup + 1), 256);
    }

    /// Does the job on this warpgroup's rows of Q in shared memory; a warp on its own, which
    /// ldmatrix reads. Products read those of all warps.
    ATTNFORGE_DEVICE void work_on_q(const Work& work) {
      QJob::run(params, work.queries, work.queries.first_row + warpgroup * 64,
                smem.q(q_ring.stage, warpgroup), warp() * 16);
      fence_proxy_async();  // before the products, or before TMA's next write
      if constexpr (C.q_in_regs)
        __syncwarp();
      else
        named_barrier_wait(4 + warpgroup, 128);
    }

    // -- Products --

    ATTNFORGE_DEVICE void read_q() {
      if constexpr (C.q_in_regs != 0) {
#pragma unroll
        for (int d = 0; d < kDepthSteps; ++d) {
          const u32 chunk = smem.q(q_ring.stage, warpgroup) +
                            d * 16 / C.chunk_columns() * C.q_chunk_bytes();
          const u32 at = (warp() * 16 + lane() % 16) * C.swizzle + d * 16 % C.chunk_columns() * 2 +
                         lane() / 16 * 16;
          ldmatrix_x4(q[d], chunk + (at ^ ((at >> 7 << 4) & (C.swizzle - 16))));
        }
        release(smem.q_empty(q_ring.stage));
      }
    }

    /// s = Q K^T of the tile in K's ring; in flight until a wait.
    ATTNFORGE_DEVICE void issue_scores() {
      const u64 a = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.q(q_ring.stage, warpgroup));
      const u64 b = smem_descriptor<C.swizzle, 16, 8 * C.swizzle>(smem.k(k_ring.stage));
      pin(s);
      wgmma_fence();
#pragma unroll
      for (int d = 0; d < kDepthSteps; ++d) {
        const int chunk = d * 16 / C.chunk_columns(), inside = d * 16 % C.chunk_columns() * 2;
        const u64 b_at = b + (chunk * C.kv_chunk_bytes() + inside) / 16;
        if constexpr (C.q_in_regs)
          Scores::regs_smem(s, q[d][0], q[d][1], q[d][2], q[d][3], b_at, d > 0);
        else
          Scores::smem_smem(s, a + (chunk * C.q_chunk_bytes() + inside) / 16, b_at, d > 0);
      }
      wgmma_commit();
    }

    /// o += P V of the tile in V's ring; in flight until a wait.
    ATTNFORGE_DEVICE void issue_outputs() {
      const u64 b = smem_descriptor<C.swizzle, C.kv_chunk_bytes(), 8 * C.swizzle>(
          smem.v(v_ring.stage));
      pin(o);
      pin(probs);
      wgmma_fence();
#pragma unroll
      for (int j = 0; j < C.block_n / 16; ++j)
        Outputs::regs_smem_mn(o, probs[j][0], probs[j][1], probs[j][2], probs[j][3],
                              b + j * 16 * C.swizzle / 16);
      wgmma_commit();
    }

    ATTNFORGE_DEVICE void await_k() const {
      mbarrier_wait(smem.k_ready(k_ring.stage), k_ring.parity);
    }
    ATTNFORGE_DEVICE void await_v() const {
      mbarrier_wait(smem.v_ready(v_ring.stage), v_ring.parity);
    }
    /// Zeros in V's rows after the last key, in the first tile of a walk: their probabilities are
    /// 0, which is not enough where they are another sequence's NaN. Every warpgroup writes them.
    /// Rows of the tile from `present` on.
    ATTNFORGE_DEVICE void clear_tail(int present) const {
      if constexpr (Tile::Lengths::kAnythingAfter) {
        if (present >= C.block_n) return;
        constexpr int kRowPieces = C.swizzle / 16;  // of 16 bytes
        constexpr float kZeros[4] = {};
        const int thread = thread_index() % 128;
#pragma unroll 1
        for (int c = 0; c < C.v_chunks(); ++c) {
          const u32 chunk = smem.v(v_ring.stage) + c * C.kv_chunk_bytes();
#pragma unroll 1
          for (int i = present * kRowPieces + thread; i < C.block_n * kRowPieces; i += 128)
            store_shared(chunk + i * 16, kZeros);
        }
        fence_proxy_async();
        named_barrier_wait(4 + warpgroup, 128);
      }
    }
    ATTNFORGE_DEVICE void release_k() {
      release(smem.k_empty(k_ring.stage));
      k_ring.advance();
    }
    ATTNFORGE_DEVICE void release_v() {
      release(smem.v_empty(v_ring.stage));
      v_ring.advance();
    }

    // -- Softmax --

    /// Scores to probabilities, still in fp32. True if older outputs are to be multiplied by
    /// `rescale`. `view` is of `s`.
    template <class View>
    ATTNFORGE_DEVICE bool probabilities(const Tile& queries, const View& view, bool needs_mask,
                                        float (&rescale)[2]) {
      const auto replace = [&] {
        Pieces::Score::apply(view, queries);
        if (needs_mask) Pieces::Mask::apply(view, queries);
      };
      if constexpr (Pieces::Score::kSeries) {
        const typename Pieces::Score::Series series{typename Pieces::Score(p), scale_log2};
        return softmax.probabilities_by_series(s, scale_log2, series, needs_mask, replace, rescale);
      } else {
        replace();
        return softmax.probabilities(s, scale_log2, rescale);
      }
    }

    ATTNFORGE_DEVICE void round_probabilities() {
#pragma unroll
      for (int j = 0; j < kScoreFragments / 2; ++j)
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const auto& from = s[2 * j + w / 2];
          probs[j][w] = pack2<C.dtype>(from[w % 2 * 2], from[w % 2 * 2 + 1]);
        }
    }

    // -- A tile of keys, and a query tile --

    /// The scores of a tile to probabilities that the next outputs take. in_flight: with them are
    /// the outputs of the tile before. begun: there are outputs of tiles before.
    template <class View>
    ATTNFORGE_DEVICE void attend(const Tile& queries, const View& view, bool in_flight, bool begun,
                                 bool needs_mask) {
      float rescale[2];
      const bool raised = probabilities(queries, view, needs_mask, rescale);
      wgmma_wait<0>();
      pin(o);
      pin(probs);
      if (in_flight) release_v();
      if (raised && begun) {
#pragma unroll
        for (int j = 0; j < kOutFragments; ++j) {
          o[j][0] *= rescale[0], o[j][1] *= rescale[0];
          o[j][2] *= rescale[1], o[j][3] *= rescale[1];
        }
      }
      round_probabilities();
    }

    ATTNFORGE_DEVICE void begin_rows() {
      softmax = SoftmaxRows();
#pragma unroll
      for (int j = 0; j < kOutFragments; ++j)
#pragma unroll
        for (int c = 0; c < 4; ++c) o[j][c] = 0.0f;
    }

    // Gathered tiles.
    static constexpr int kGroupKeys = C.block_n / C.key_groups();
    using Groups = KeyGroups<C.key_groups(), kGroupKeys>;

    /// Of the tile in K's ring. `sees`: whether this warpgroup's rows see anything of it.
    ATTNFORGE_DEVICE Groups load_groups(bool& sees) const {
      return Groups::load(smem.groups(k_ring.stage), warpgroup * 4 + warp(), sees);
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
      const GroupedScores<float[kScoreFragments][4], C.key_groups(), kGroupKeys> view{s, row,
                                                                                      groups};
      attend(queries, view, in_flight, begun, view.needs_mask());
    }

    /// The tiles of a walk that this warpgroup attends to.
    ATTNFORGE_DEVICE Walk its_walk(const Work& work, int first_row) const {
      if constexpr (kLeavesOut) return work.walk.seen_by(work.queries, C.block_n, first_row, 64);
      return work.walk.of_part(work.queries, C.block_n, first_row, 64);
    }
    ATTNFORGE_DEVICE void leave_out(int tiles) {
#pragma unroll 1
      for (; tiles > 0; --tiles) {
        await_k();  // and V: else two arrivals might be of one phase
        await_turn();
        pass_turn();
        release_k();
        await_v();
        release_v();
      }
    }

    /// All tiles of a walk, by every warpgroup; under windows, those that its rows see.
    ATTNFORGE_DEVICE void attend_query_tile(const Work& work) {
      const int first_row = work.queries.first_row + warpgroup * 64;
      const int row = first_row + lane_row();
      const Walk walk = its_walk(work, first_row);
      Groups groups;
      bool sees;
      int present = C.block_n;  // gathered: rows of the first tile
      const auto clear_first = [&] {
        if constexpr (kListed)
          clear_tail(present);
        else
          clear_tail(work.queries.lengths.kv() - walk.tile(0) * C.block_n);
      };
      begin_rows();
      if constexpr (kLeavesOut) leave_out(work.walk.before(walk));

      const bool empty = kLeavesOut ? walk.count() == 0 : work.empty();
      if (!empty) {
        await_k();
        await_turn();
        issue_scores();
        pass_turn();
        if constexpr (kListed) {
          groups = load_groups(sees);
          present = present_rows(work.queries, groups);
        }
        wgmma_wait<0>();
        pin(s);
        release_k();
#pragma unroll 1
        for (int i = 0;; ++i) {
          if constexpr (kListed) {
            attend_groups(work.queries, row, groups, i != 0, i != 0);
          } else {
            const FragmentScores<float[kScoreFragments][4]> view{s, row, walk.tile(i) * C.block_n};
            attend(work.queries, view, i != 0, i != 0, walk.masked(i));
          }
          if (i + 1 == walk.count()) break;
          // The scores of the next tile with the outputs of this one.
          await_k();
          await_turn();
          issue_scores();
          await_v();
          if (i == 0) clear_first();
          issue_outputs();
          pass_turn();
          if constexpr (kListed) groups = load_groups(sees);
          wgmma_wait<1>();
          pin(s);
          release_k();
        }
      }
      if constexpr (!C.q_in_regs) release(smem.q_empty(q_ring.stage));
      if (!empty) {
        await_v();
        if (walk.count() == 1) clear_first();
        issue_outputs();
        wgmma_wait<0>();
        pin(o);
        release_v();
      }
      if constexpr (kLeavesOut) leave_out(work.walk.after(walk));
      store(work.queries, row);
    }

    /// o += P V of the tile whose probabilities are here.
    ATTNFORGE_DEVICE void finish_outputs(int present) {
      await_v();
      clear_tail(present);
      issue_outputs();
      wgmma_wait<0>();
      pin(o);
      release_v();
    }

    /// Of a list's tiles those that this warpgroup's rows see anything of. Warpgroups that take
    /// turns take every tile.
    ATTNFORGE_DEVICE void attend_seen_tiles(const Work& work) {
      const int row = work.queries.first_row + warpgroup * 64 + lane_row();
      begin_rows();
      bool pending = false;  // probabilities of a tile, whose V is next in the ring
      int present = C.block_n;
#pragma unroll 1
      for (int i = 0; i < work.walk.count(); ++i) {
        await_k();
        bool sees;
        const Groups groups = load_groups(sees);
        if (!sees) {
          if (pending) finish_outputs(present);
          pending = false;
          release_k();
          await_v();  // else two arrivals might be of one phase
          release_v();
          continue;
        }
        issue_scores();
        if (pending) {
          await_v();
          clear_tail(present);
          issue_outputs();
          wgmma_wait<1>();
        } else {
          wgmma_wait<0>();
        }
        pin(s);
        release_k();
        attend_groups(work.queries, row, groups, pending, i != 0);
        present = i == 0 ? present_rows(work.queries, groups) : C.block_n;
        pending = true;
      }
      if constexpr (!C.q_in_regs) release(smem.q_empty(q_ring.stage));
      if (pending) finish_outputs(present);
      store(work.queries, row);
    }

    ATTNFORGE_DEVICE void store(const Tile& queries, int row) {
      float inverse[2], lse[2];
      softmax.finish(inverse, lse);
      Output::template store<0, kOutFragments>(queries, row, 0, o, inverse[0], lse[0]);
      Output::template store<1, kOutFragments>(queries, row + 8, 0, o, inverse[1], lse[1]);
    }

    /// The tile after `tile` (before the first: -1), with its Q in shared memory; num_tiles() or
    /// more when there is none.
    ATTNFORGE_DEVICE int await_tile(int tile) const {
      if constexpr (!kTells) {
        const int next = following(params, tile);
        if (next < num_tiles(params)) mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
        return next;
      } else {
        mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
        // The same in all lanes, and the compiler must know: descriptors then stay in uniform
        // registers.
        return from_lane_0(load_shared(smem.tile(q_ring.stage)));
      }
    }

    ATTNFORGE_DEVICE void run() {
      if (C.pingpong && warpgroup == C.warpgroups - 1) pass_turn();  // the first has the first turn
      if constexpr (kTellsAll) {
        while (await_tile(-1) != kNoTile) {
          const Work work = Work::load(params, smem.tile(q_ring.stage) + 4);
          read_q();
          if constexpr (kListed && C.warpgroups > 1 && !C.pingpong)
            attend_seen_tiles(work);
          else
            attend_query_tile(work);
          q_ring.advance();
        }
      } else {
        for (int tile = await_tile(-1); tile < num_tiles(params); tile = await_tile(tile)) {
          if constexpr (!QJob::kNone) work_on_q(Work(params, tile));
          read_q();
          attend_query_tile(Work(params, tile));
          q_ring.advance();
        }
      }
    }
  };

  // ---- 4. Roles ----

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(1024) u8 shared_memory[];
    const Shared smem{smem_address(shared_memory)};
    if (threadIdx.x == 0) smem.init_barriers();
    if constexpr (Pieces::Order::kFinds)
      if (threadIdx.x / 32 == 1) Pieces::Order::find(params);
    __syncthreads();
    const int warpgroup = from_lane_0(threadIdx.x / 128);
    if (warpgroup == C.warpgroups) {
      registers_shrink<C.producer_registers()>();
      constexpr int kFirst = C.warpgroups * 128;
      if (Producer::kByWarp ? threadIdx.x < kFirst + 32 : threadIdx.x == kFirst)
        Producer(params, smem).run();
      if constexpr (kWorkerWarps > 0)
        if (threadIdx.x >= C.warpgroups * 128 + 32) Worker(params, smem).run();
    } else {
      registers_grow<C.consumer_registers()>();
      Consumer(params, smem, warpgroup).run();
    }
  }
};

}  // namespace attnforge
