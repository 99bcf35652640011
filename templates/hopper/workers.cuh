// workers.cuh - the role of a Hopper kernel that changes tiles of K or V in shared memory between
// their arrival and their use (a job): numbers of another format become those of a product; or that
// loads tiles of an array. Who has such work includes it: other kernels hold nothing of it.
#pragma once

#include "hopper/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// The tile of K or V that a job is done on. Of the query tile it knows the sequence, the K/V head,
/// lengths and the kernel's argument.
template <auto C, class Work>
struct JobTile {
  using KeyTile = decltype(Work::walk.tile(0));

  const typename Work::Tile& queries;
  KeyTile tile;  // its number, or a lane's group of keys

  /// The key in row `row`; none if it is not below queries.lengths.kv(): such rows hold zeros or
  /// what TMA found. By all lanes of a warp.
  ATTNFORGE_DEVICE int key(int row) const {
    if constexpr (Work::kListed) {
      constexpr int kGroupKeys = C.block_n / C.key_groups();
      const int group = from_lane(int(tile.number & ~KeyTile::kEdge), row / kGroupKeys);
      return group * kGroupKeys + row % kGroupKeys;
    } else {
      return tile * C.block_n + row;
    }
  }
};

/// Of the kernel's Pieces, KJob where C.k_job() and VJob where C.v_job(): templates over JobTile. A
/// job is made of (tile, warp, warps) before the tile comes, and may begin to load what it needs;
/// then run(from, to) is called: `to` is what consumers read, `from` where TMA wrote, often the
/// same.
///
/// Where C.may_tile_rows() the Score loads tiles, and waits until consumers want them
/// (parts/user_code/row_ring.cuh).
///
/// Workers are told of query tiles as consumers are, and take key tiles in the order in which they
/// arrive. A buffer is free when consumers say so: they wait for the workers, which then are done
/// with what TMA wrote, too.
template <auto C, class Pieces, class Kernel>
struct Workers {
  using Params = typename Kernel::Params;
  using Shared = typename Kernel::Shared;
  using Work = typename Kernel::Work;
  using Tile = JobTile<C, Work>;

  const Params& params;
  const Shared smem;
  Ring<C.k_stages> k_ring;
  Ring<C.v_stages> v_ring;
  Ring<C.q_stages> q_ring;
  u32 row_tiles = 0;  // so far

  ATTNFORGE_DEVICE Workers(const Params& p, Shared s) : params(p), smem(s) {}

  template <class Job, int kStages>
  ATTNFORGE_DEVICE void work_on(const Work& work, int i, u32 from, u32 to, u32 full, u32 ready,
                                Ring<kStages>& ring) {
    const int warp = thread_index() / 32 - Shared::kConsumerWarps - 1;
    Job job(Tile{work.queries, work.walk.tile(i)}, warp, Shared::kWorkerWarps);
    mbarrier_wait(full, ring.parity);
    job.run(from, to);
    fence_proxy_async();
    __syncwarp();
    if (thread_index() % 32 == 0) mbarrier_arrive(ready);
    ring.advance();
  }
  ATTNFORGE_DEVICE void work_on_k(const Work& work, int i) {
    const int stage = k_ring.stage;
    if constexpr (C.k_job())
      work_on<typename Pieces::template KJob<Tile>>(
          work, i, smem.k(stage), smem.k(stage), smem.k_full(stage), smem.k_ready(stage), k_ring);
  }
  ATTNFORGE_DEVICE void work_on_v(const Work& work, int i) {
    const int stage = v_ring.stage;
    if constexpr (C.v_job())
      work_on<typename Pieces::template VJob<Tile>>(work, i, smem.v_source(stage), smem.v(stage),
                                                    smem.v_full(stage), smem.v_ready(stage),
                                                    v_ring);
  }
  ATTNFORGE_DEVICE void load_rows(const Work& work, int i) {
    if constexpr (C.may_tile_rows())
      Pieces::Score::load(smem.base, row_tiles++, work.queries, work.walk.tile(i) * C.block_n,
                          thread_index() - 32 * (Shared::kConsumerWarps + 1));
  }
  ATTNFORGE_DEVICE void work_on_keys(const Work& work) {
    for (int i = 0; i < work.walk.count(); ++i) {
      load_rows(work, i);
      work_on_k(work, i);
      if (i > 0) work_on_v(work, i - 1);
    }
    if (!work.empty()) work_on_v(work, work.walk.count() - 1);
  }

  // ---- Query tiles ----

  /// The number of the one after `tile` (before the first: -1). `end` or more: there is none.
  ATTNFORGE_DEVICE int await_tile(int tile) const {
    if constexpr (!Work::kTells) return Work::following(params, tile);
    mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
    return from_lane_0(load_shared(smem.tile(q_ring.stage)));
  }
  ATTNFORGE_DEVICE int end() const {
    if constexpr (Work::kTellsAll)
      return Work::kNoTile;
    else
      return Work::num_tiles(params);
  }
  ATTNFORGE_DEVICE Work work_of(int tile) const {
    if constexpr (!Work::kTellsAll) return Work(params, tile);
    if constexpr (!Work::kListed) return Work::load(params, smem.tile(q_ring.stage) + 4);
    return Work(params, Work::Tile::load(params, smem.tile(q_ring.stage) + 4));
  }
  ATTNFORGE_DEVICE void give_q_back() {
    if constexpr (!Work::kTells) return;
    __syncwarp();
    if (thread_index() % 32 == 0) mbarrier_arrive(smem.q_empty(q_ring.stage));
    q_ring.advance();
  }

  ATTNFORGE_DEVICE void run() {
    for (int tile = await_tile(-1); tile < end(); tile = await_tile(tile)) {
      const Work work = work_of(tile);
      give_q_back();
      work_on_keys(work);
    }
  }
};

}  // namespace attnforge
