// kernel.cuh - attention backward for Hopper: a block keeps a tile of K and V and walks over the
// query tiles that see it. One warp feeds and drains (feed.cuh), warpgroups compute with wgmma
// (warpgroup.cuh): each has keys of its own (by_keys.cuh) or columns (by_columns.cuh).
#pragma once

#include "bwd_wgmma_sm90a/by_columns.cuh"
#include "bwd_wgmma_sm90a/by_keys.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "bwd_wgmma_sm90a/feed.cuh"
#include "bwd_wgmma_sm90a/shared.cuh"
#include "bwd_wgmma_sm90a/warpgroup.cuh"
#include "bwd_wgmma_sm90a/work.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/warpgroup.cuh"

namespace attnforge {

/// Pieces: DensePieces<C>, Queries, a Slope, or what an entry makes of them, and of the argument.
template <BwdWgmmaSm90aConfig C, class Pieces, class ParamsType = BwdWgmmaSm90aParams>
struct BwdWgmmaSm90a {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  using Params = ParamsType;
  using Feed = BwdWgmmaSm90aFeed<C, Pieces, Params>;
  using Warpgroup = BwdWgmmaSm90aWarpgroup<C, Pieces, Params>;

  template <int kIndex>
  using ByColumns = BwdWgmmaSm90aByColumns<C, Pieces, Params, kIndex>;
  using ByKeys = BwdWgmmaSm90aByKeys<C, Pieces, Params>;

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(1024) u8 shared_memory[];
    const BwdWgmmaSm90aShared<C> smem{smem_address(shared_memory)};
    if (threadIdx.x == 0) smem.init_barriers(Warpgroup::threads_storing());
    if constexpr (C.zeros_ahead) smem.set_zeros();
    await_previous_grid();  // what it wrote to the scratch
    start_next_grid();
    using Work = BwdWgmmaSm90aWork<C, Pieces, Params>;
    // There may be fewer tiles than the host has to take into account.
    if constexpr (Work::packed() && !C.persistent())
      if (block_index() >= Work::all_tiles(params)) return;
    __syncthreads();
    const BwdWgmmaSm90aKeyTiles<C, Pieces, Params> key_tiles(params, smem);
    const int warpgroup = from_lane_0(threadIdx.x / 128);
    if (warpgroup == C.warpgroups) {
      registers_shrink<C.producer_registers()>();
      const int warp = (threadIdx.x - Warpgroup::kConsumers) / 32;
      if constexpr (C.may_tile_rows())
        if (warp == 3) Pieces::Score::load_all(smem, key_tiles);
      if constexpr (Warpgroup::stores_aside())
        if (warp == 1 || warp == 2)
          Pieces::Dargs::template store_all<C>(smem, key_tiles.work, threadIdx.x % 128 - 32);
      if (threadIdx.x % 32 != 0) return;
      if (warp == 0) Feed::load(params, smem, key_tiles);
      if (warp >= 1 && warp <= C.adders()) Feed::add_dq(params, smem, key_tiles, warp - 1);
      if constexpr (C.persistent() && C.zeros_ahead)
        if (warp == C.adders() + 1) Feed::set_all_zeros(params, smem, key_tiles);
    } else {
      registers_grow<C.consumer_registers()>();
      if constexpr (!C.split_columns) {
        ByKeys{Warpgroup(params, smem, warpgroup)}.run(key_tiles);
      } else if (warpgroup == 0) {
        ByColumns<0>{Warpgroup(params, smem, 0)}.run(key_tiles);
      } else {
        ByColumns<1>{Warpgroup(params, smem, 1)}.run(key_tiles);
      }
    }
  }
};

}  // namespace attnforge
