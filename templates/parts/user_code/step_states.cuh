// step_states.cuh - the step that asks a mask's text for every pair of a query and a key: which
// groups of keys 16 rows see, and which of them not all of.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/user_code/terms.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// A warp for each group of a list, eight a block. Terms (parts/user_code/terms.cuh) decide where
/// they can; what is left is asked of Rule::of_row(), pair by pair. kBits: whose pairs are asked
/// gets a bit for each, else it is done at the first mix of seen and unseen.
template <class Lengths, class Rule, class Terms, int kBlockM, int kGroupKeys, class Window,
          bool kBits>
struct MaskStates {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kFragments = kBlockM / 16;
  static_assert(kGroupKeys % 16 == 0, "keys are shared by all lanes of a warp, or by halves");
  static_assert(kFragments <= 32, "a fragment a lane");

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ u32 of_warps[kWarps], asked[kWarps], partial[kWarps];  // bit f: fragment f
    start_next_grid();
    const FwdParams& p = params.fwd;
    const int groups = ceil_div(p.seqlen_kv, kGroupKeys), blocks = ceil_div(groups, kWarps);
    const int list = int(blockIdx.x) / blocks, first_group = int(blockIdx.x) % blocks * kWarps;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const ListPlace place(params.lists, list);
    const Lengths lengths(params, place.sequence);
    const int first = (first_group + warp) * kGroupKeys, first_query = place.m_block * kBlockM;

    // 1. Fragments whose windows let them see some of the warp's group.
    const FragmentKeys keys = FragmentKeys::of(p, lengths, first_query + lane * 16);
    u32 some = lanes_where(lane < kFragments && first < lengths.kv() && first <= keys.last &&
                           (!Window::kLeft || first + kGroupKeys > keys.first));

    // 2. What terms decide of many pairs at once.
    u32 left = some;
    if constexpr (Terms::kCount > 0) {
      // All threads or none do this. Under causal masks half of the blocks have groups that no
      // row's window reaches.
      if (__syncthreads_or(some != 0)) {
        const Verdicts verdicts = decide<0>(params, place, lengths, first);
        some &= ~verdicts.none;
        left = Terms::kAll ? some & ~verdicts.all : some;
      }
    }
    if (lane == 0) of_warps[warp] = some, asked[warp] = left, partial[warp] = 0;
    __syncthreads();

    // 3. Pair by pair; who is done helps the others.
    const i64 first_state = i64(list) * groups + first_group;
    int turn = 0;
#pragma unroll 1
    for (int w = 0; w < kWarps; ++w) {
#pragma unroll 1
      for (u32 rest = asked[w]; rest != 0; rest &= rest - 1, ++turn) {
        if (turn % kWarps != warp) continue;
        const int f = __ffs(int(rest)) - 1;
        u32* const bits = kBits ? params.lists.bits + ((first_state + w) * kFragments + f) *
                                                          kTextBitsWords<kGroupKeys>
                                : nullptr;
        const u32 found = of_rows(params, place, lengths, first_query + f * 16,
                                  (first_group + w) * kGroupKeys, bits);
        if (lane != 0) continue;
        if (found == 0) atomicAnd(&of_warps[w], ~(1u << f));
        if (found == 3) atomicOr(&partial[w], 1u << f);
      }
    }
    __syncthreads();
    if (lane == 0 && first_group + warp < groups)
      params.lists.states[first_state + warp] = of_warps[warp] | partial[warp]
                                                                     << KeyGroup::kMostFragments;
  }

  /// Bit f: of fragment f, no pair is seen, or all are by the terms so far.
  struct Verdicts {
    u32 none, all;
  };

  /// Decides by the terms from kTerm on. All threads of the block come: its groups have the same
  /// rows.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE static Verdicts decide(const Params& params, const ListPlace& place,
                                          const Lengths& lengths, int first_key) {
    static_assert(kFragments <= 2 * kWarps, "a fragment for half a warp");
    const int lane = int(threadIdx.x) % 32, half = int(threadIdx.x) / 16;
    const auto of_key = [&](int i) {
      return Terms::template of_key<kTerm>(params, lengths, place.sequence, place.head,
                                           min(first_key + lane + i, lengths.kv() - 1));
    };
    const auto of_query = [&] {
      return Terms::template of_query<kTerm>(
          params, lengths, place.sequence, place.head,
          min(place.m_block * kBlockM + int(threadIdx.x), lengths.q() - 1));
    };
    using Keys = typename RangeOfType<decltype(of_key(0))>::Type;
    using Rows = typename RangeOfType<decltype(of_query())>::Type;
    __shared__ Rows of_fragments[kFragments];
    Rows rows = Rows::of(of_query());
    Keys keys = Keys::of(of_key(0));
#pragma unroll
    for (int i = 32; i < kGroupKeys; i += 32) keys.add(of_key(i));
    keys.join(~0u);
    rows.join(0xffffu << (lane & 16));
    if (lane % 16 == 0 && half < kFragments) of_fragments[half] = rows;
    __syncthreads();
    const TermVerdict found = verdict_of(Terms::relation(kTerm),
                                         of_fragments[min(lane, kFragments - 1)], keys);
    Verdicts verdicts{lanes_where(found.none), lanes_where(found.all)};
    if constexpr (kTerm + 1 < Terms::kCount) {
      const Verdicts others = decide<kTerm + 1>(params, place, lengths, first_key);
      verdicts.none |= others.none;
      verdicts.all &= others.all;
    }
    return verdicts;
  }

  /// What of some rows and keys the text lets be seen. An instruction each for a pair: comparisons
  /// are combined as they are made.
  struct Seen {
    bool some = false, all = true;
  };

  /// Two bits of 16 rows: bit 0, one sees a key of the group; bit 1, and one does not.
  template <class Params>
  ATTNFORGE_DEVICE static u32 of_rows(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int query, int first_key, u32* bits) {
    const auto bits_of = [&](int key) { return kBits ? bits + key / 32 : nullptr; };
    Seen seen;
#pragma unroll 1
    for (int j = 0; j + 32 <= kGroupKeys; j += 32) {
      ask<32>(params, place, lengths, query, first_key + j, seen, bits_of(j));
      if (!kBits && any_lane(seen.some) && any_lane(!seen.all)) return 3;
    }
    if constexpr (kGroupKeys % 32 != 0)
      ask<16>(params, place, lengths, query, first_key + kGroupKeys / 32 * 32, seen,
              bits_of(kGroupKeys));
    return any_lane(seen.some) ? 1 + 2 * any_lane(!seen.all) : 0;
  }

  /// 16 rows and kKeys keys. A lane has a key, and reads what depends on that alone once for all
  /// its rows: 16, or 8 where two lanes have the same key. `bits` is where the first row's go.
  template <int kKeys, class Params>
  ATTNFORGE_DEVICE static void ask(const Params& params, const ListPlace& place,
                                   const Lengths& lengths, int query, int first_key, Seen& seen,
                                   u32* bits) {
    constexpr int kRows = kKeys / 2;
    const int lane = int(threadIdx.x) % 32, key = first_key + lane % kKeys,
              row = query + lane / kKeys * kRows;
    const auto sees = [&](int i) {
      return Rule::of_row(params, lengths, place.sequence, place.head, i, key)(0);
    };
    u32 of_row = 0;  // of lane's row, or 0
    const auto note = [&](int i, bool present, bool is_seen) {
      seen.some |= present && is_seen;
      seen.all &= !present || is_seen;
      if constexpr (kBits) {
        const u32 lanes = lanes_where(present && is_seen);
        if (lane % kRows == i)
          of_row = kKeys == 32 ? lanes : lanes >> (lane / kRows % 2 * 16) & 0xffff;
      }
    };
    if (query + 16 <= lengths.q() && first_key + kKeys <= lengths.kv()) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) note(i, true, sees(row + i));
    } else {
#pragma unroll 1
      for (int i = 0; i < kRows; ++i) {
        const bool present = row + i < lengths.q() && key < lengths.kv();
        note(i, present, present && sees(row + i));
      }
    }
    if constexpr (kBits) {
      if (lane < 16) bits[lane * kTextBitsRowWords<kGroupKeys>] = of_row;
    }
  }
};

}  // namespace attnforge
