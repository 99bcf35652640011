// kernel.cuh - the step that asks a mask's text for every pair of a query and a key: which groups
// of keys 16 rows see, and which of them not all of.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_tile_lists.h"
#include "ptx/grid_dependency.cuh"
#include "ptx/shuffle.cuh"
#include "tile/list_place.cuh"

namespace attnforge {

/// A warp a group of a list, out at the first mix of seen and unseen. Rule::of_row() is the text.
template <class Lengths, class Rule, int kBlockM, int kGroupKeys, class Window>
struct MaskStates {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static_assert(kGroupKeys % 16 == 0, "keys are shared by all lanes of a warp, or by halves");

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    start_next_grid();
    const FwdParams& p = params.fwd;
    const int groups = ceil_div(p.seqlen_kv, kGroupKeys), blocks = ceil_div(groups, kWarps);
    const int list = int(blockIdx.x) / blocks;
    const int group = int(blockIdx.x) % blocks * kWarps + int(threadIdx.x) / 32;
    const ListPlace place(params.lists, list);
    const Lengths lengths(params, place.sequence);
    const int first = group * kGroupKeys;
    if (group >= groups || first >= lengths.kv()) return;
    u32 state = 0;
#pragma unroll 1
    for (int f = 0; f < kBlockM / 16; ++f) {
      const int query = place.m_block * kBlockM + f * 16;
      const FragmentKeys keys = FragmentKeys::of(p, lengths, query);
      if (first > keys.last || (Window::kLeft && first + kGroupKeys <= keys.first)) continue;
      const u32 found = of_rows(params, place, lengths, query, first);
      state |= (found & 1) << f | (found >> 1) << (KeyGroup::kMostFragments + f);
    }
    if (threadIdx.x % 32 == 0) params.lists.states[i64(list) * groups + group] = state;
  }

  /// Of 16 rows: bit 0, one sees a key of the group; bit 1, and one does not. A lane has a key, and
  /// reads what depends on that alone once for all rows.
  template <class Params>
  ATTNFORGE_DEVICE static u32 of_rows(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int query, int first_key) {
    const bool whole = query + 16 <= lengths.q() && first_key + kGroupKeys <= lengths.kv();
    bool some = false, all = true;  // an instruction each: a comparison's result is combined there
    const auto ask = [&](int row, int key) {
      const bool sees = Rule::of_row(params.fwd, lengths, place.sequence, place.head, row, key)(0);
      some |= sees;
      all &= sees;
    };
#pragma unroll
    for (int j = 0; j < kGroupKeys; j += 32) {
      // Half of the lanes share the last 16 keys with the others, and have half of the rows.
      const int lanes = min(kGroupKeys - j, 32), rows = lanes / 2;
      const int lane = int(threadIdx.x) % 32, key = first_key + j + lane % lanes,
                row = query + lane / lanes * rows;
      if (whole) {
#pragma unroll
        for (int i = 0; i < rows; ++i) ask(row + i, key);
      } else if (key < lengths.kv()) {
#pragma unroll 1
        for (int i = row; i < min(row + rows, lengths.q()); ++i) ask(i, key);
      }
      if (any_lane(some) && any_lane(!all)) return 3;
    }
    return any_lane(some) ? 1 : 0;
  }
};

}  // namespace attnforge
