// kernel.cuh - attention forward for Hopper: a block has query tiles of 64 rows a warpgroup, and
// visits the key tiles that they see. A warp loads them by TMA into rings (producer.cuh), or four
// do from pages, or three may change them there (hopper/workers.cuh), and warpgroups compute with
// wgmma (consumer.cuh, warpgroup.cuh). They meet at the barriers of shared.cuh alone.
#pragma once

#include "fwd_wgmma_sm90a/config.h"
#include "fwd_wgmma_sm90a/producer.cuh"
#include "fwd_wgmma_sm90a/query_tiles.cuh"
#include "fwd_wgmma_sm90a/shared.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/warpgroup.cuh"

namespace attnforge {

/// hopper/workers.cuh, which the header of a job includes.
template <auto C, class Pieces, class Kernel>
struct Workers;

/// Pieces: DenseTmaPieces<C>, or what an entry makes of it; so is the argument, ParamsType.
template <FwdWgmmaSm90aConfig C, class Pieces, class ParamsType = FwdWgmmaSm90aParams>
struct FwdWgmmaSm90a {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  using Params = ParamsType;
  using Shared = FwdWgmmaSm90aShared<C>;
  using Producer = FwdWgmmaSm90aProducer<C, Pieces, Params>;
  using Work = typename Producer::Work;
  using QueryTiles = FwdWgmmaSm90aQueryTiles<C, Pieces, Params>;
  using Warpgroup = typename QueryTiles::Warpgroup;

  static_assert(Producer::kThreads <= (Shared::kWorkerWarps > 0 ? 32 : 128), "a warp has one role");

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(1024) u8 shared_memory[];
    const Shared smem{smem_address(shared_memory)};
    if constexpr (C.may_tile_rows()) Pieces::Score::init_barriers(smem.base);
    if (threadIdx.x == 0) smem.init_barriers();
    if constexpr (Pieces::Order::kFinds) Pieces::Order::find(params);
    if constexpr (C.own_lists != 0) Pieces::Lists::template make<Pieces>(params);
    __syncthreads();
    const int warpgroup = from_lane_0(threadIdx.x / 128);
    if (warpgroup == C.warpgroups) {
      registers_shrink<C.producer_registers()>();
      constexpr int kFirst = C.warpgroups * 128;
      if (Producer::kByWarp ? threadIdx.x < kFirst + Producer::kThreads : threadIdx.x == kFirst)
        Producer(params, smem).run();
      if constexpr (Shared::kWorkerWarps > 0)
        if (threadIdx.x >= kFirst + 32) Workers<C, Pieces, FwdWgmmaSm90a>(params, smem).run();
    } else {
      registers_grow<C.consumer_registers()>();
      QueryTiles{{Warpgroup(params, smem, warpgroup)}}.run();
    }
  }
};

}  // namespace attnforge
