// workers.cuh - the role of fwd_wgmma_sm90a that there is where K or V have a job: three warps that
// do it in shared memory, where the tiles lie, between their arrival and their use.
#pragma once

#include "base.cuh"
#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/shared.cuh"
#include "fwd_wgmma_sm90a/work.cuh"
#include "hopper/ring.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/proxy.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

template <FwdWgmmaSm90aConfig C, class Pieces, class Params>
struct FwdWgmmaSm90aWorker {
  using Shared = FwdWgmmaSm90aShared<C>;
  using Work = FwdWgmmaSm90aWork<C, Pieces, Params>;

  const Params& params;
  const Shared smem;
  Ring<C.k_stages> k_ring;
  Ring<C.v_stages> v_ring;
  Ring<C.q_stages> q_ring;

  ATTNFORGE_DEVICE FwdWgmmaSm90aWorker(const Params& p, Shared s) : params(p), smem(s) {}

  ATTNFORGE_DEVICE int await_tile(int tile) {
    if constexpr (C.grid != kGridDynamic) return Work::following(params, tile);
    mbarrier_wait(smem.q_full(q_ring.stage), q_ring.parity);
    const int next = from_lane_0(load_shared(smem.tile(q_ring.stage)));  // read, not on its way
    if (thread_index() % 32 == 0) mbarrier_arrive(smem.q_empty(q_ring.stage));
    q_ring.advance();
    return next;
  }

  /// Does the job on tile n of `ring`, at `tile`: between its arrival, `full`, and its use.
  template <class Job, int kStages>
  ATTNFORGE_DEVICE void work_on(const Work& work, int n, u32 tile, u32 full, u32 ready,
                                Ring<kStages>& ring) {
    const int warp = thread_index() / 32 - Shared::kConsumerWarps - 1;
    const Job job(params, work.queries, n, warp, Shared::kWorkerWarps);
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
    if constexpr (C.k_job())
      work_on<typename Pieces::KJob>(work, n, smem.k(stage), smem.k_full(stage),
                                     smem.k_ready(stage), k_ring);
  }
  ATTNFORGE_DEVICE void work_on_v(const Work& work, int n) {
    const int stage = v_ring.stage;
    if constexpr (C.v_job())
      work_on<typename Pieces::VJob>(work, n, smem.v(stage), smem.v_full(stage),
                                     smem.v_ready(stage), v_ring);
  }

  ATTNFORGE_DEVICE void run() {
    for (int tile = await_tile(-1); tile < Work::num_tiles(params); tile = await_tile(tile)) {
      const Work work(params, tile);
      for (int i = 0; i < work.walk.count(); ++i) {  // in the order in which they arrive
        work_on_k(work, work.walk.tile(i));
        if (i > 0) work_on_v(work, work.walk.tile(i - 1));
      }
      if (!work.empty()) work_on_v(work, work.walk.tile(work.walk.count() - 1));
    }
  }
};

}  // namespace attnforge
