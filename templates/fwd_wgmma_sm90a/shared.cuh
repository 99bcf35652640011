// shared.cuh - where a block of fwd_wgmma_sm90a has its tiles and barriers. Q, K and V come through
// rings of their own: consumers are done with K of a tile before V is read, and the next Q comes
// during this one.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "ptx/mbarrier.cuh"

namespace attnforge {

/// Shared memory and barriers of a block, as 32-bit addresses.
template <FwdWgmmaSm90aConfig C>
struct FwdWgmmaSm90aShared {
  static constexpr int kConsumerWarps = 4 * C.warpgroups;
  /// All but the first warp of the producer's warpgroup.
  static constexpr int kWorkerWarps = C.has_workers() ? 3 : 0;
  /// Workers read beside Q which query tile it is of, where that is told.
  static constexpr int kQReaders = kConsumerWarps + (C.tells() ? kWorkerWarps : 0);

  u32 base;

  // ---- Tiles ----

  ATTNFORGE_DEVICE u32 q(int stage, int warpgroup) const {
    return base + stage * C.q_bytes() + warpgroup * C.q_warpgroup_bytes();
  }
  ATTNFORGE_DEVICE u32 k(int stage) const { return base + C.k_begin() + stage * C.k_stage_bytes(); }
  ATTNFORGE_DEVICE u32 v(int stage) const {
    return C.transposes_v() ? base + C.transposed_begin() + stage * C.transposed_bytes()
                            : v_source(stage);
  }
  // Where TMA writes V: the buffer that consumers read, or one that a job reads.
  ATTNFORGE_DEVICE u32 v_source(int stage) const {
    return base + C.v_begin() + stage * C.v_bytes();
  }
  /// Work::kTells: the query tile that comes with Q in this stage.
  ATTNFORGE_DEVICE u32 tile(int stage) const {
    return base + C.tiles_begin() + C.tile_bytes() * stage;
  }
  /// Work::kListed: the groups of the key tile in this stage.
  ATTNFORGE_DEVICE u32 groups(int stage) const {
    return base + C.groups_begin() + 8 * C.key_groups() * stage;
  }

  // ---- Barriers ----

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
    return C.k_job() ? q_full(2 * C.q_stages + stage) : k_full(stage);
  }
  ATTNFORGE_DEVICE u32 v_ready(int stage) const {
    return C.v_job() ? q_full(2 * C.q_stages + (C.k_job() ? C.k_stages : 0) + stage)
                     : v_full(stage);
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
      mbarrier_init(q_empty(i), kQReaders);
    }
    if constexpr (C.k_job())
      for (int i = 0; i < C.k_stages; ++i) mbarrier_init(k_ready(i), kWorkerWarps);
    if constexpr (C.v_job())
      for (int i = 0; i < C.v_stages; ++i) mbarrier_init(v_ready(i), kWorkerWarps);
    mbarrier_init_fence();
  }
};

}  // namespace attnforge
