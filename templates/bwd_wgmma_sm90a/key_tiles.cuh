// key_tiles.cuh - the key tiles of a block of bwd_wgmma_sm90a, one after another, as its roles come
// by them. A persistent block's producer asks for each, and tells the others its number with K and
// V.
#pragma once

#include "base.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// One tile: its work is found before the block's roles part, in one copy of that code.
template <BwdWgmmaSm90aConfig C, class Pieces, class Params, bool kPersistent = C.persistent()>
struct BwdWgmmaSm90aKeyTiles {
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;

  const Work work;

  ATTNFORGE_DEVICE BwdWgmmaSm90aKeyTiles(const Params& params, const BwdWgmmaSm90aShared<C>&)
      : work(params, block_index()) {}

  template <bool kWarps, class Visit>
  ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
    visit(work);
  }
};

template <BwdWgmmaSm90aConfig C, class Pieces, class Params>
struct BwdWgmmaSm90aKeyTiles<C, Pieces, Params, true> {
  using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;

  const Params& params;
  const BwdWgmmaSm90aShared<C> smem;

  ATTNFORGE_DEVICE BwdWgmmaSm90aKeyTiles(const Params& kernel_params,
                                         const BwdWgmmaSm90aShared<C>& shared)
      : params(kernel_params), smem(shared) {}

  /// Calls visit(work) for each, by lane 0 of a warp, or with kWarps by all its lanes. A thread
  /// that has read the number, and in shared memory what it wants of K and V, arrives at
  /// kv_empty().
  template <bool kWarps, class Visit>
  ATTNFORGE_DEVICE void for_each(const Visit& visit) const {
#pragma unroll 1
    for (u32 number = 0;; ++number) {
      mbarrier_wait(smem.kv_full(), number % 2);
      const int told = load_shared(smem.told());
      const int tile = kWarps ? from_lane_0(told) : from_lone_lane_0(told);
      if (tile >= params.order.m_blocks * params.order.heads) return;
      visit(Work(params, tile));
    }
  }
};

}  // namespace attnforge
