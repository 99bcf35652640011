// shared.cuh - where a block of bwd_wgmma_sm90a has its tiles and barriers.
#pragma once

#include "bwd_wgmma_sm90a/config.h"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/tma.cuh"

namespace attnforge {

/// Shared memory and barriers of a block, as 32-bit addresses.
template <BwdWgmmaSm90aConfig C>
struct BwdWgmmaSm90aShared {
  u32 base;

  ATTNFORGE_DEVICE u32 k() const { return base; }
  ATTNFORGE_DEVICE u32 v() const { return base + C.v_begin(); }
  ATTNFORGE_DEVICE u32 q(int stage) const { return base + C.q_begin() + stage * C.q_bytes(); }
  ATTNFORGE_DEVICE u32 dout(int stage) const { return base + C.do_begin() + stage * C.do_bytes(); }
  ATTNFORGE_DEVICE u32 ds(int stage) const { return base + C.ds_begin() + stage * C.ds_bytes(); }
  /// split_columns: of the probabilities, or of what dP - delta is multiplied with.
  ATTNFORGE_DEVICE u32 p(int array) const { return base + C.p_begin() + array * C.ds_bytes(); }
  ATTNFORGE_DEVICE u32 below() const { return base + C.below_begin(); }
  /// Part i of the dQ that a warpgroup has written in a round.
  ATTNFORGE_DEVICE u32 dq(int warpgroup, int stage, int i) const {
    const int buffer = (warpgroup * C.dq_stages + stage) * C.dq_held() + i;
    return base + C.dq_begin() + buffer * C.dq_part_bytes();
  }
  ATTNFORGE_DEVICE u32 rows(int stage) const {
    return base + C.rows_begin() + stage * C.row_box_bytes();
  }
  ATTNFORGE_DEVICE u32 zeros() const { return base + C.zeros_begin(); }
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
  ATTNFORGE_DEVICE u32 dq_full(int warpgroup, int stage) const {
    return barrier(1 + 2 * (C.q_stages + C.do_stages) + warpgroup * C.dq_stages + stage);
  }
  ATTNFORGE_DEVICE u32 dq_empty(int warpgroup, int stage) const {
    return dq_full(C.warpgroups + warpgroup, stage);
  }

  // Full: elements have come. Empty: all consumer warps that have scores have read them.
  ATTNFORGE_DEVICE u32 rows_full(int stage) const { return dq_full(2 * C.warpgroups, stage); }
  ATTNFORGE_DEVICE u32 rows_empty(int stage) const { return rows_full(C.row_stages() + stage); }

  // late_dq. Full: all consumer warps have written dS. Empty: all have read it.
  ATTNFORGE_DEVICE u32 ds_full(int stage) const { return rows_full(2 * C.row_stages() + stage); }
  ATTNFORGE_DEVICE u32 ds_empty(int stage) const { return ds_full(C.ds_stages + stage); }

  // Persistent blocks. Full is kv_full(). Empty: nobody needs K, V or the number any more.
  ATTNFORGE_DEVICE u32 kv_empty() const { return barrier(C.num_barriers() - 1); }
  /// The key tile that comes with K and V.
  ATTNFORGE_DEVICE u32 told() const { return base + C.told_begin(); }

  ATTNFORGE_DEVICE u32 barrier(int index) const { return base + C.barriers_begin() + 8 * index; }

  /// All threads of the block call this; a block barrier must follow.
  ATTNFORGE_DEVICE void set_zeros() const {
    constexpr float kZeros[4] = {};
    for (int i = thread_index() * 16; i < C.zero_bytes(); i += C.num_threads() * 16)
      store_shared(zeros() + i, kZeros);
    fence_proxy_async();
  }

  static constexpr int kConsumerWarps = 4 * C.warpgroups;
  /// ds_readers: what else reads dS arrives so often.
  ATTNFORGE_DEVICE void init_barriers(int ds_readers) const {
    mbarrier_init(kv_full(), 1);
    for (int i = 0; i < C.q_stages; ++i) {
      mbarrier_init(q_full(i), 1);
      mbarrier_init(q_empty(i), kConsumerWarps);
    }
    for (int i = 0; i < C.do_stages; ++i) {
      mbarrier_init(do_full(i), 1);
      mbarrier_init(do_empty(i), kConsumerWarps);
    }
    for (int i = 0; i < C.warpgroups * C.dq_stages; ++i) {
      mbarrier_init(dq_full(0, i), 4);
      mbarrier_init(dq_empty(0, i), 1);
    }
    for (int i = 0; i < (C.late_dq ? C.ds_stages : 0); ++i) {
      mbarrier_init(ds_full(i), kConsumerWarps);
      mbarrier_init(ds_empty(i), kConsumerWarps + ds_readers);
    }
    for (int i = 0; i < C.row_stages(); ++i) {
      mbarrier_init(rows_full(i), 32);
      mbarrier_init(rows_empty(i), C.split_columns ? 4 : kConsumerWarps);
    }
    if constexpr (C.persistent())
      mbarrier_init(kv_empty(), kConsumerWarps + C.adders() + C.zeros_ahead + C.may_tile_rows());
    mbarrier_init_fence();
  }
};

}  // namespace attnforge
