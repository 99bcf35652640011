// step_lists.cuh - the step that writes, for each query tile, the list of groups of keys it sees.
#pragma once

#include "parts/key_lists/list_writer.cuh"
#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

/// A block a list. kBlockM rows of a query tile, kGroups groups of kGroupKeys keys in a key tile.
/// Source says what the mask lets be seen; windows and lengths hide more.
template <class Lengths, class Source, int kBlockM, int kGroups, int kGroupKeys, class Window>
struct MakeKeyLists {
  static constexpr int kThreads = 256, kAtATime = 1024;
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
    const int tiles = List::write(params, place, states, fragments, of_warps, list);
    if (threadIdx.x == 0) lists.counts[blockIdx.x] = tiles;
  }
};

}  // namespace attnforge
