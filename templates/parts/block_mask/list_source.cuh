// list_source.cuh - what a block mask lets the rows of a query tile see.
#pragma once

#include "parts/block_mask/params.h"
#include "parts/key_lists/params.h"
#include "parts/key_lists/place.cuh"

namespace attnforge {

/// Blocks of kBlockQ queries and kBlockKv keys; these are one or more groups. The argument has a
/// BlockMaskParams `mask`. kRowsTogether: threads share out the block rows of the query tile first,
/// so that short rows wait for memory together; else the entries of one row after another.
template <int kBlockQ, int kBlockKv, bool kRowsTogether = false>
struct BlockSource {
  ATTNFORGE_DEVICE static void await() {}

  /// Adds the states of `count` groups from first_group on. By kThreads threads.
  template <int kBlockM, int kGroupKeys, int kThreads, class Params>
  ATTNFORGE_DEVICE static void add(const Params& params, const ListPlace& place, u32* states,
                                   int first_group, int count) {
    constexpr int kGroupsOfBlock = kBlockKv / kGroupKeys;
    const BlockMaskParams& mask = params.mask;
    const int first_row = place.m_block * kBlockM;
    const int rows = (mask.mask_batch > 1 ? place.sequence : 0) * mask.mask_heads;
    const int head = mask.mask_heads == params.lists.heads
                         ? place.head
                         : place.head * mask.mask_heads / params.lists.heads;
    const int end = min((first_row + kBlockM - 1) / kBlockQ + 1, mask.q_blocks);
    constexpr int kRows = kRowsTogether ? most_rows(kBlockM) : 1, kOfRow = kThreads / kRows;
    const int thread = int(threadIdx.x), entry = kRowsTogether ? thread % kOfRow : thread;
    // Threads that are left over do again what others do, which changes nothing.
#pragma unroll 1
    for (int row = first_row / kBlockQ + (kRowsTogether ? thread / kOfRow : 0); row < end;
         row += kRows) {
      const int* const ends = mask.row_begin + i64(rows + head) * mask.q_blocks + row;
      const int from = max(row * kBlockQ - first_row, 0) / 16,
                to = min((row + 1) * kBlockQ - first_row, kBlockM) / 16;
      const u32 fragments = (1u << to) - (1u << from);
      for (int e = ends[0] + entry; e < ends[1]; e += kOfRow) {
        const int column = mask.columns[e];
        const u32 state = fragments | (column & 1 ? fragments << KeyGroup::kMostFragments : 0);
        const int group = (column >> 1) * kGroupsOfBlock - first_group;
#pragma unroll
        for (int i = 0; i < kGroupsOfBlock; ++i)
          if (group + i >= 0 && group + i < count) atomicOr(&states[group + i], state);
      }
    }
  }

 private:
  /// Block rows that a query tile can have rows of.
  ATTNFORGE_DEVICE static constexpr int most_rows(int block_m) {
    return ceil_div(block_m, kBlockQ) + (block_m % kBlockQ != 0 && kBlockQ % block_m != 0 ? 1 : 0);
  }
};

}  // namespace attnforge
