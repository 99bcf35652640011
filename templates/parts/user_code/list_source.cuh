// list_source.cuh - what a mask's text lets the rows of a query tile see: as
// parts/user_code/step_states has found.
#pragma once

#include "base.cuh"
#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

struct TextSource {
  ATTNFORGE_DEVICE static void await() { await_previous_grid(); }

  template <int kBlockM, int kGroupKeys, int kThreads, class Params>
  ATTNFORGE_DEVICE static void add(const Params& params, const ListPlace&, u32* states,
                                   int first_group, int count) {
    const int groups = ceil_div(params.fwd.seqlen_kv, kGroupKeys);
    const u32* const from = params.lists.states + i64(blockIdx.x) * groups + first_group;
    for (int i = int(threadIdx.x); i < min(count, groups - first_group); i += kThreads)
      states[i] = from[i];
  }
};

}  // namespace attnforge
