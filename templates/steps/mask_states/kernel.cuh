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

/// A warp a group of a list, out at the first mix of seen and unseen. Rule::of_pair() is the text.
template <class Lengths, class Rule, int kBlockM, int kGroupKeys, bool kLeftBound>
struct MaskStates {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;

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
      if (first > keys.last || (kLeftBound && first + kGroupKeys <= keys.first)) continue;
      const u32 found = of_rows(params, place, lengths, query, first);
      state |= (found & 1) << f | (found >> 1) << (KeyGroup::kMostFragments + f);
    }
    if (threadIdx.x % 32 == 0) params.lists.states[i64(list) * groups + group] = state;
  }

  /// Of 16 rows: bit 0, one sees a key of the group; bit 1, and one does not.
  template <class Params>
  ATTNFORGE_DEVICE static u32 of_rows(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int query, int first_key) {
    const int rows = min(lengths.q() - query, 16);
    bool some = false, all = true;
#pragma unroll 1
    for (int j = int(threadIdx.x) % 32; j < round_up(kGroupKeys, 32); j += 32) {
      const int key = first_key + j;
      if (j < kGroupKeys && key < lengths.kv()) {
        const auto ask = [&](int row) {
          const bool sees = Rule::of_pair(params.fwd, lengths, place.sequence, place.head,
                                          query + row, key);
          some |= sees;
          all &= sees;
        };
        if (rows == 16) {
#pragma unroll
          for (int row = 0; row < 16; ++row) ask(row);
        } else {
          for (int row = 0; row < rows; ++row) ask(row);
        }
      }
      if (any_lane(some) && any_lane(!all)) return 3;
    }
    return any_lane(some) ? 1 : 0;
  }
};

}  // namespace attnforge
