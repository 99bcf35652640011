// step_states.cuh - the step that asks a mask's text for every pair of a query and a key: which
// groups of keys 16 rows see, and which of them not all of.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"
#include "parts/user_code/mask_rows.cuh"
#include "parts/user_code/terms.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// Groups of a list, eight warps a block, some groups a warp or one. Terms
/// (parts/user_code/terms.cuh) decide where they can; what is left is asked of Rule::of_row(), pair
/// by pair. kBits: whose pairs are asked gets a bit for each, else it is done at the first mix of
/// seen and unseen.
template <class Lengths, class Rule, class Terms, int kBlockM, int kGroupKeys, class Window,
          bool kBits, int kGroupsOfBlock>
struct MaskStates {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kDeciding = kGroupsOfBlock < kWarps ? kGroupsOfBlock : kWarps;  // warps
  static constexpr int kFragments = kBlockM / 16, kPerWarp = kGroupsOfBlock / kDeciding;
  static constexpr int kVerdicts = Terms::kCount > 0 ? Terms::kCount : 1;
  static_assert(kGroupKeys % 16 == 0, "keys are shared by all lanes of a warp, or by halves");
  static_assert(kFragments <= 2 * kWarps, "a fragment a lane, and one for half a warp");
  static_assert(kGroupsOfBlock <= 32 && kGroupsOfBlock % kDeciding == 0, "a group a lane");

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    // Bit f: fragment f.
    __shared__ u32 of_groups[kGroupsOfBlock], asked[kGroupsOfBlock], partial[kGroupsOfBlock];
    start_next_grid();
    if (blockIdx.x == 0 && threadIdx.x == 0) params.lengths.work->lists_done = 0;
    const FwdParams& p = params.fwd;
    const int groups = ceil_div(p.seqlen_kv, kGroupKeys), blocks = ceil_div(groups, kGroupsOfBlock);
    if (blocks == 0) return;
    const int list = int(blockIdx.x) / blocks,
              first_group = int(blockIdx.x) % blocks * kGroupsOfBlock;
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const ListPlace place(params.lists, list);
    const Lengths lengths(params, place.sequence);
    const int first_query = place.m_block * kBlockM;
    const i64 first_state = i64(list) * groups + first_group;
    const bool has_group = int(threadIdx.x) < min(kGroupsOfBlock, groups - first_group);

    // 1. Fragments whose windows let them see some of a group. Under causal masks half of the
    // blocks have groups that no row's window reaches.
    const FragmentKeys keys = FragmentKeys::of(p, lengths, first_query + lane * 16);
    u32 some[kPerWarp], any = 0;
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      const int first = (first_group + i * kDeciding + warp) * kGroupKeys;
      some[i] = lanes_where(warp < kDeciding && lane < kFragments && first < lengths.kv() &&
                            first <= keys.last &&
                            (!Window::kLeft || first + kGroupKeys > keys.first));
      any |= some[i];
    }
    if (!__syncthreads_or(any != 0)) {
      if (has_group) params.lists.states[first_state + threadIdx.x] = 0;
      return;
    }

    // 2. What terms decide of many pairs at once.
    u32 left[kPerWarp];
    if constexpr (Terms::kCount > 0) {
      find_rows<0>(params, place, lengths);
      __syncthreads();
      TermVerdicts of_terms[kPerWarp][kVerdicts];
      decide<0>(params, place, lengths, (first_group + warp) * kGroupKeys, of_terms);
#pragma unroll
      for (int i = 0; i < kPerWarp; ++i) {
        const TermVerdicts found = Terms::value(of_terms[i]);
        some[i] &= ~found.none;
        left[i] = some[i] & ~found.all;
      }
    } else {
      for (int i = 0; i < kPerWarp; ++i) left[i] = some[i];
    }
#pragma unroll
    for (int i = 0; i < kPerWarp; ++i) {
      const int group = i * kDeciding + warp;
      if (lane == 0 && warp < kDeciding)
        of_groups[group] = some[i], asked[group] = left[i], partial[group] = 0;
    }
    __syncthreads();

    // 3. Pair by pair; who is done helps the others.
    const u32 own = lane < kGroupsOfBlock ? asked[lane] : 0;
    int turn = 0;
#pragma unroll 1
    for (u32 open = lanes_where(own != 0); open != 0; open &= open - 1) {
      const int g = __ffs(int(open)) - 1;
#pragma unroll 1
      for (u32 rest = u32(from_lane(int(own), g)); rest != 0; rest &= rest - 1, ++turn) {
        if (turn % kWarps != warp) continue;
        const int f = __ffs(int(rest)) - 1;
        u32* const bits = kBits ? params.lists.bits + ((first_state + g) * kFragments + f) *
                                                          kTextBitsWords<kGroupKeys>
                                : nullptr;
        const u32 found = of_rows(params, place, lengths, first_query + f * 16,
                                  (first_group + g) * kGroupKeys, bits);
        if (lane != 0) continue;
        if (found == 0) atomicAnd(&of_groups[g], ~(1u << f));
        if (found == 3) atomicOr(&partial[g], 1u << f);
      }
    }
    __syncthreads();
    if (has_group)
      params.lists.states[first_state + threadIdx.x] = of_groups[threadIdx.x] |
                                                       partial[threadIdx.x]
                                                           << KeyGroup::kMostFragments;
  }

  // What terms say of a query, and the range of what they say of the rows of each fragment.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE static auto of_query(const Params& params, const ListPlace& place,
                                        const Lengths& lengths, int query) {
    return Terms::template of_query<kTerm>(params, lengths, place.sequence, place.head,
                                           min(query, lengths.q() - 1));
  }
  template <int kTerm, class Params>
  using RowRange = typename RangeOfType<decltype(of_query<kTerm>(
      *(const Params*)nullptr, *(const ListPlace*)nullptr, *(const Lengths*)nullptr, 0))>::Type;
  template <class Rows, int kTerm>
  ATTNFORGE_DEVICE static Rows (&ranges_of_fragments())[kFragments] {
    __shared__ Rows ranges[kFragments];
    return ranges;
  }

  /// Of the terms from kTerm on, for all fragments. All threads of the block come.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE static void find_rows(const Params& params, const ListPlace& place,
                                         const Lengths& lengths) {
    using Rows = RowRange<kTerm, Params>;
    const int lane = int(threadIdx.x) % 32, half = int(threadIdx.x) / 16;
    Rows rows = Rows::of(
        of_query<kTerm>(params, place, lengths, place.m_block * kBlockM + int(threadIdx.x)));
    rows.join(0xffffu << (lane & 16));
    if (lane % 16 == 0 && half < kFragments) ranges_of_fragments<Rows, kTerm>()[half] = rows;
    if constexpr (kTerm + 1 < Terms::kCount) find_rows<kTerm + 1>(params, place, lengths);
  }

  /// What the terms from kTerm on say of each fragment and a warp's groups, of which the first
  /// begins at first_key.
  template <int kTerm, class Params>
  ATTNFORGE_DEVICE static void decide(const Params& params, const ListPlace& place,
                                      const Lengths& lengths, int first_key,
                                      TermVerdicts (&found)[kPerWarp][kVerdicts]) {
    const int lane = int(threadIdx.x) % 32;
    const auto of_key = [&](int group, int i) {
      const int key = first_key + group * kDeciding * kGroupKeys + lane + i;
      return Terms::template of_key<kTerm>(params, lengths, place.sequence, place.head,
                                           min(key, lengths.kv() - 1));
    };
    using Keys = typename RangeOfType<decltype(of_key(0, 0))>::Type;
    Keys keys[kPerWarp];
#pragma unroll
    for (int g = 0; g < kPerWarp; ++g) {
      keys[g] = Keys::of(of_key(g, 0));
#pragma unroll
      for (int i = 32; i < kGroupKeys; i += 32) keys[g].add(of_key(g, i));
    }
    const auto
        rows = ranges_of_fragments<RowRange<kTerm, Params>, kTerm>()[min(lane, kFragments - 1)];
#pragma unroll
    for (int g = 0; g < kPerWarp; ++g) {
      keys[g].join(~0u);
      const TermVerdict verdict = verdict_of(Terms::relation(kTerm), rows, keys[g]);
      found[g][kTerm] = {lanes_where(verdict.none), lanes_where(verdict.all)};
    }
    if constexpr (kTerm + 1 < Terms::kCount)
      decide<kTerm + 1>(params, place, lengths, first_key, found);
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
    if constexpr (ReadsMaskRows<Rule>) {
      if (query + 16 <= lengths.q() && first_key + kGroupKeys <= lengths.kv()) {
        const int lane = int(threadIdx.x) % 32;
        const bool* const row = Rule::place(params, lengths, place.sequence, place.head,
                                            query + lane / 2, first_key + lane % 2 * 16);
        if (!any_lane(reinterpret_cast<u64>(row) % 16 != 0)) return read_rows(row, bits);
      }
    }
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

  /// The same of rows that are there to be read: a lane has half of one, 16 of each 32 keys.
  ATTNFORGE_DEVICE static u32 read_rows(const bool* row, u32* bits) {
    constexpr int kWords = ceil_div(kGroupKeys, 32);
    const int lane = int(threadIdx.x) % 32;
    u32 bytes[kWords][4];
#pragma unroll
    for (int i = 0; i < kWords; ++i)
      load_global(bytes[i], row + 32 * i, i * 32 + lane % 2 * 16 < kGroupKeys);
    Seen seen;
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const u32 half = bits_of_bytes(bytes[i]), other = __shfl_xor_sync(~0u, half, 1);
      seen.some |= half != 0;
      seen.all &= half == 0xffff || i * 32 + lane % 2 * 16 >= kGroupKeys;
      if constexpr (kBits) {
        if (lane % 2 == 0) bits[lane / 2 * kTextBitsRowWords<kGroupKeys> + i] = half | other << 16;
      }
    }
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
