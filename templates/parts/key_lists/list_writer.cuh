// list_writer.cuh - the list of groups of keys that some rows of a query tile see: made by the
// block of a step, or by the kernel's that has the tile.
#pragma once

#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"

namespace attnforge {

/// Who has nothing to do with a list beside writing it.
struct NoNote {
  ATTNFORGE_DEVICE void operator()(int, const KeyGroup&) const {}
};

/// kBlockM rows of a query tile, kGroups groups of kGroupKeys keys in a key tile. Source says what
/// the mask lets be seen; windows and lengths hide more. kNumThreads are those of a block,
/// kNumStates how many groups are looked at together.
template <class Lengths, class Source, int kBlockM, int kGroups, int kGroupKeys, class Window,
          int kNumThreads, int kNumStates>
struct KeyListWriter {
  static constexpr int kThreads = kNumThreads, kWarps = kThreads / 32;
  static constexpr int kAtATime = kNumStates;  // groups, whose states are in shared memory
  static constexpr int kPerThread = ceil_div(kAtATime, kThreads);

  /// Writes the list of `place`, and returns how many key tiles it has. By all threads of a block,
  /// which see all of it after their next barrier. `states`, `fragments` and `of_warps` are shared
  /// memory; `list` may lie where `states` does if it has no more than kAtATime groups. All threads
  /// call note(place, group) before they write a group there, or of no rows where they write none.
  template <class Params, class Note = NoNote>
  ATTNFORGE_DEVICE static int write(const Params& params, const ListPlace& place,
                                    u32 (&states)[kAtATime],
                                    FragmentKeys (&fragments)[kBlockM / 16],
                                    int (&of_warps)[kWarps], KeyGroup* list,
                                    const Note& note = {}) {
    const FwdParams& p = params.fwd;
    const Lengths lengths(params, place.sequence);
    const int thread = int(threadIdx.x);
    if (thread < kBlockM / 16)
      fragments[thread] = FragmentKeys::of(p, lengths, place.m_block * kBlockM + thread * 16);
    Source::await();
    const int all_groups = ceil_div(lengths.kv(), kGroupKeys);
    int written = 0;
    for (int first = 0; first < all_groups; first += kAtATime) {
      for (int i = thread; i < kAtATime; i += kThreads) states[i] = 0;
      __syncthreads();
      Source::template add<kBlockM, kGroupKeys, kThreads>(params, place, states, first, kAtATime);
      __syncthreads();
      KeyGroup own[kPerThread];
      int count = 0;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int group = first + thread * kPerThread + i;
        const bool has_state = kPerThread * kThreads == kAtATime ||
                               thread * kPerThread + i < kAtATime;
        own[i] = has_state && group < all_groups
                     ? seen(fragments, group, states[thread * kPerThread + i])
                     : KeyGroup{0, 0};
        count += own[i].rows != 0;
      }
      int total;
      int at = written + sum_before(count, of_warps, total);
      written += total;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        note(at, own[i]);
        if (own[i].rows != 0) list[at++] = own[i];
      }
    }
    // The last tile is filled up with groups that lie after all keys.
    const int filled = round_up(written, kGroups);
    if (written + thread < filled) list[written + thread] = {kAfterAllKeys / kGroupKeys, 0};
    return filled / kGroups;
  }

  /// A key that no tensor has, and that a sequence's beginning may be added to.
  static constexpr u32 kAfterAllKeys = 1u << 29;

  /// What is left of a group's state, with windows and lengths.
  ATTNFORGE_DEVICE static KeyGroup seen(const FragmentKeys (&fragments)[kBlockM / 16], int group,
                                        u32 state) {
    if (state == 0) return {0, 0};
    const int first = group * kGroupKeys, last = first + kGroupKeys - 1;
    u32 hidden = 0;
    bool edge = false;
#pragma unroll 1
    for (int f = 0; f < kBlockM / 16; ++f) {
      const FragmentKeys keys = fragments[f];
      const bool sees = first <= keys.last && (!Window::kLeft || last >= keys.first);
      const bool all = last <= keys.all_last && (!Window::kLeft || first >= keys.all_first);
      if (!sees) hidden |= 1u << f;
      edge |= sees && !all && (state >> f & 1);
    }
    state &= ~(hidden | hidden << KeyGroup::kMostFragments);
    return {u32(group) | (edge ? KeyGroup::kEdge : 0), state};
  }

  /// The sum of x over the threads before this one, and over all.
  ATTNFORGE_DEVICE static int sum_before(int x, int (&of_warps)[kWarps], int& total) {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    int through = x;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(~0u, through, distance);
      if (lane >= distance) through += before;
    }
    __syncthreads();
    if (lane == 31) of_warps[warp] = through;
    __syncthreads();
    int before = 0;
    total = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w < warp) before += of_warps[w];
      total += of_warps[w];
    }
    return before + through - x;
  }
};

}  // namespace attnforge
