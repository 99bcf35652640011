// key_tiles.cuh - the key tiles of a block of bwd_wgmma_sm90a, one after another, as roles come by
// them that do not load: the producer asks for each, and tells its number with K and V.
#pragma once

#include "base.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Calls visit(work) for each, by lane 0 of a warp, or with kWarps by all its lanes. Whoever has
/// read the number, and in shared memory what it wants of K and V, arrives at kv_empty().
template <bool kWarps, class Work, BwdWgmmaSm90aConfig C, class Params, class Visit>
ATTNFORGE_DEVICE void for_each_tile(const Params& params, const BwdWgmmaSm90aShared<C>& smem,
                                    const Visit& visit) {
  if constexpr (!C.persistent()) {
    visit(Work(params, block_index()));
  } else {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      mbarrier_wait(smem.kv_full(), number % 2);
      const int told = load_shared(smem.told());
      const int tile = kWarps ? from_lane_0(told) : from_lone_lane_0(told);
      if (tile >= params.order.m_blocks * params.order.heads) return;
      visit(Work(params, tile));
    }
  }
}

}  // namespace attnforge
