// step_lists.cuh - the step that writes, for each query tile, the list of groups of keys it sees.
#pragma once

#include "parts/key_lists/list_writer.cuh"
#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/key_lists/walk_part.cuh"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

/// A block a list. kBlockM rows of a query tile, kGroups groups of kGroupKeys keys in a key tile.
/// Source says what the mask lets be seen; windows and lengths hide more. kWarpgroups: it says
/// which tiles each of them sees, of lists with one group a tile; 0: it does not.
template <class Lengths, class Source, int kBlockM, int kGroups, int kGroupKeys, class Window,
          int kAtATime = 1024, int kWarpgroups = 0>
struct MakeKeyLists {
  static constexpr int kThreads = 256;
  static_assert(kWarpgroups == 0 || kGroups == 1, "a place in the list is a tile");
  using List = KeyListWriter<Lengths, Source, kBlockM, kGroups, kGroupKeys, Window, kThreads,
                             kAtATime>;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ u32 states[kAtATime];
    __shared__ FragmentKeys fragments[kBlockM / 16];
    __shared__ int of_warps[List::kWarps];
    start_next_grid();
    const KeyListParams& lists = params.lists;
    const ListPlace place(lists, int(blockIdx.x));
    KeyGroup* const list = lists.groups + i64(blockIdx.x) * lists.capacity;
    if constexpr (kWarpgroups == 0) {
      const int tiles = List::write(params, place, states, fragments, of_warps, list);
      if (threadIdx.x == 0) lists.counts[blockIdx.x] = tiles;
    } else {
      __shared__ int first[kWarpgroups], last[kWarpgroups];  // that a warpgroup sees
      if (threadIdx.x < kWarpgroups) first[threadIdx.x] = kBeyond, last[threadIdx.x] = -1;
      const auto note = [&](int at, const KeyGroup& group) {
#pragma unroll
        for (int w = 0; w < kWarpgroups; ++w) {
          const bool sees = (group.rows >> 4 * w & 15) != 0;
          const int low = __reduce_min_sync(~0u, sees ? at : int{kBeyond}),
                    high = __reduce_max_sync(~0u, sees ? at : -1);
          if (threadIdx.x % 32 != 0 || high < 0) continue;
          atomicMin(&first[w], low);
          atomicMax(&last[w], high);
        }
      };
      const int tiles = List::write(params, place, states, fragments, of_warps, list, note);
      __syncthreads();
      if (threadIdx.x == 0) lists.counts[blockIdx.x] = tiles;
      if (threadIdx.x < kWarpgroups) {
        // The last tiles come first.
        const int low = first[threadIdx.x], high = last[threadIdx.x];
        const WalkPart part = high < 0 ? WalkPart{0, 0}
                                       : WalkPart{tiles - 1 - high, high - low + 1};
        lists.parts[i64(blockIdx.x) * kWarpgroups + threadIdx.x] = part.word();
      }
    }
  }

 private:
  static constexpr int kBeyond = 0x7fffffff;
};

/// The same, and the order of query tiles by their lists, by the block that is done last: a step
/// fewer. The step before sets TileQueue::lists_done to 0.
template <class Lists, class Queue>
struct MakeListsAndQueue {
  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ bool is_last;
    Lists::run(params);
    if (threadIdx.x == 0) {  // who has written the count of tiles
      __threadfence();
      is_last = atomicAdd(&params.lengths.work->lists_done, 1u) + 1 == gridDim.x;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    Queue::run(params);
  }
};

}  // namespace attnforge
