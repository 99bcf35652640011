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

  /// What of some rows and keys the text lets be seen. An instruction each for a pair: comparisons
  /// are combined as they are made.
  struct Seen {
    bool some = false, all = true;
  };

  /// Of 16 rows: bit 0, one sees a key of the group; bit 1, and one does not.
  template <class Params>
  ATTNFORGE_DEVICE static u32 of_rows(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int query, int first_key) {
    Seen seen;
#pragma unroll 1
    for (int j = 0; j + 32 <= kGroupKeys; j += 32) {
      ask<32>(params, place, lengths, query, first_key + j, seen);
      if (any_lane(seen.some) && any_lane(!seen.all)) return 3;
    }
    if constexpr (kGroupKeys % 32 != 0)
      ask<16>(params, place, lengths, query, first_key + kGroupKeys / 32 * 32, seen);
    return any_lane(seen.some) ? 1 + 2 * any_lane(!seen.all) : 0;
  }

  /// 16 rows and kKeys keys. A lane has a key, and reads what depends on that alone once for all
  /// its rows: 16, or 8 where two lanes have the same key.
  template <int kKeys, class Params>
  ATTNFORGE_DEVICE static void ask(const Params& params, const ListPlace& place,
                                   const Lengths& lengths, int query, int first_key, Seen& seen) {
    constexpr int kRows = kKeys / 2;
    const int lane = int(threadIdx.x) % 32, key = first_key + lane % kKeys,
              row = query + lane / kKeys * kRows;
    const auto of_row = [&](int i) {
      const bool sees = Rule::of_row(params.fwd, lengths, place.sequence, place.head, i, key)(0);
      seen.some |= sees;
      seen.all &= sees;
    };
    if (query + 16 <= lengths.q() && first_key + kKeys <= lengths.kv()) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) of_row(row + i);
    } else if (key < lengths.kv()) {
#pragma unroll 1
      for (int i = row; i < min(row + kRows, lengths.q()); ++i) of_row(i);
    }
  }
};

}  // namespace attnforge
