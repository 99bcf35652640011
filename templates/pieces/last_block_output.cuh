// last_block_output.cuh - Output of a kernel whose query tiles have several blocks, each with a
// split of the keys: the last of a tile's blocks merges what all have written.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_partials.h"
#include "params_split_merge.h"
#include "pieces/split_walk.cuh"
#include "ptx/arrive.cuh"
#include "ptx/special_registers.cuh"
#include "tile/elements.cuh"
#include "tile/merge_by_warp.cuh"
#include "tile/valueless_score.cuh"

namespace attnforge {

/// C is the kernel's config; Argument is its argument, up to the PartialParams; Splits are those of
/// the walk. Which block is the last, chance decides; what it computes is the same.
template <auto C, class Argument, class Splits>
struct LastBlockOutput : PartialOutput<Argument, C.head_dim_v, Splits> {
  static constexpr bool kMerges = true;

  ATTNFORGE_DEVICE static void begin() {}
  ATTNFORGE_DEVICE static void await_room() {}

  /// Called by all threads of the block when their rows are stored.
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void merge(const Params& params, const QueryTile& tile) {
    extern __shared__ __align__(128) u8 shared_memory[];
    int* const is_last = reinterpret_cast<int*>(shared_memory);
    MergeCounters& counters = *params.counters;
    const u32 tiles = gridDim.x * gridDim.z;
    u32 ended = 0;
    __syncthreads();
    if (threadIdx.x == 0) {
      const u32 last = u32(params.partials.splits) - 1;
      const bool came_last = arrive_and_share(
                                 &counters.arrived[blockIdx.x + gridDim.x * blockIdx.z], last) ==
                             last;
      *is_last = came_last;
      // Read when the rows are merged: nothing waits for it here.
      if (came_last) ended = arrive(&counters.tiles, tiles - 1);
    }
    __syncthreads();
    if (!*is_last) return;
    merge_rows(params, tile, reinterpret_cast<float*>(shared_memory + LastBlockMemory::kFlagBytes));
    if (threadIdx.x == 0 && ended == tiles - 1) atomicAdd(&counters.runs, 1u);
  }

  /// In place of all else by the blocks of a tile without rows.
  template <class Params>
  ATTNFORGE_DEVICE static void leave(const Params& params) {
    MergeCounters& counters = *params.counters;
    const u32 tiles = gridDim.x * gridDim.z;
    if (threadIdx.x == 0 && Splits::index() == 0 && arrive(&counters.tiles, tiles - 1) == tiles - 1)
      atomicAdd(&counters.runs, 1u);
  }

 private:
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void merge_rows(const Params& params, const QueryTile& tile,
                                          float* weights) {
    const FwdParams& p = params.fwd;
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const int end = min(tile.first_row + C.block_m, tile.end_row());
#pragma unroll 1
    for (int row = tile.first_row + warp; row < end; row += C.num_threads() / 32) {
      const int head = tile.query_head_of(row);
      const PartsOfRow its = Splits::of_row(params, tile.lengths.batch(), head,
                                            tile.lengths.q_begin() + tile.query_of(row));
      const StridedParts<kFp32> parts{params.partials.o + its.first * C.head_dim_v,
                                      params.partials.lse + its.first, its.apart * C.head_dim_v,
                                      its.apart, its.count};
      char* const to = static_cast<char*>(p.o.data) +
                       tile.offset_of(p.o, row) * element_bytes(C.dtype_o);
      MergeByWarp<C.head_dim_v>::run(
          parts, weights + warp * LastBlockMemory::kWeights, lane,
          [&](float& lse) {
            if constexpr (C.sinks != 0)
              return count_valueless(lse, __ldg(params.sinks.logits + head));
            return 1.0f;
          },
          [&](int column, const float(&x)[4]) {
            store_4<C.dtype_o, C.alignment>(to + column * element_bytes(C.dtype_o), x[0], x[1],
                                            x[2], x[3]);
          },
          [&](float lse) {
            if constexpr (C.lse != 0) p.lse[tile.lse_offset_of(row)] = lse;
          });
    }
  }
};

}  // namespace attnforge
