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
  static constexpr int kStep = 8;
  static_assert(kGroupKeys % (2 * kStep) == 0, "two halves of a warp share the keys");

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

  /// Of 16 rows: bit 0, one sees a key of the group; bit 1, and one does not. A lane has a row and
  /// every other kStep of keys, whose places the compiler knows: what depends on the row alone is
  /// computed once.
  template <class Params>
  ATTNFORGE_DEVICE static u32 of_rows(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int query, int first_key) {
    const int lane = int(threadIdx.x) % 32, row = query + lane % 16;
    const bool present = row < lengths.q();
    const auto rule = Rule::of_row(params.fwd, lengths, place.sequence, place.head,
                                   present ? row : lengths.q() - 1, first_key + lane / 16 * kStep);
    const int keys = lengths.kv() - first_key - lane / 16 * kStep;  // from the lane's first on
    const bool whole = query + 16 <= lengths.q() && first_key + kGroupKeys <= lengths.kv();
    int seen = 0, asked = 0;
#pragma unroll
    for (int j = 0; j < kGroupKeys; j += 2 * kStep) {
      if (whole) {
        asked += kStep;
#pragma unroll
        for (int i = 0; i < kStep; ++i) seen += rule(j + i);
      } else if (present) {
#pragma unroll 1
        for (int i = j; i < min(j + kStep, keys); ++i) {
          ++asked;
          seen += rule(i);
        }
      }
      if (any_lane(seen != 0) && any_lane(seen != asked)) return 3;
    }
    return any_lane(seen != 0) ? 1 : 0;
  }
};

}  // namespace attnforge
