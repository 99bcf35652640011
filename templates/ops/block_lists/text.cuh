// text.cuh - asks a mask's text for every pair of a query and a key: which blocks it leaves empty,
// full or partial, and the bits of partial ones.
#pragma once

#include "ops/block_lists/params.h"
#include "parts/block_mask/params.h"
#include "pieces/fixed_lengths.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// Blocks of kBlockQ queries and kBlockKv keys. Rule::of_row() and of_pair() are the text.
template <class Rule, int kBlockQ, int kBlockKv>
struct BlocksOfText {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;
  static constexpr int kRows = kBlockQ < 32 ? kBlockQ : 32;  // one for each lane, at a time
  static constexpr int kLaneKeys = kBlockKv / (32 / kRows);  // lanes of one row share the keys
  static constexpr int kStep = kLaneKeys < 32 ? kLaneKeys : 32;

  /// Where a row of blocks begins, and whose it is.
  struct Row {
    int head, sequence, first_query;

    ATTNFORGE_DEVICE Row(const BlockTextParams& p, int row)
        : head(row / p.q_blocks % p.heads),
          sequence(row / p.q_blocks / p.heads),
          first_query(row % p.q_blocks * kBlockQ) {}
  };

  /// A warp a block, out at the first mix of seen and unseen.
  template <class Params>
  ATTNFORGE_DEVICE static void write_states(const Params& p) {
    const u32 block = blockIdx.x * kWarps + threadIdx.x / 32;
    if (block >= u32(p.rows) * u32(p.kv_blocks)) return;
    const Row row(p, int(block / u32(p.kv_blocks)));
    const u8 state = state_of(p, row, int(block % u32(p.kv_blocks)) * kBlockKv);
    if (threadIdx.x % 32 == 0) p.states[block] = state;
  }

  template <class Params>
  ATTNFORGE_DEVICE static u8 state_of(const Params& p, const Row& row, int first_key) {
    const FixedLengths lengths(p, row.sequence);
    const int lane = int(threadIdx.x) % 32;
    const int own_key = first_key + lane / kRows * kLaneKeys;
    const bool whole = row.first_query + kBlockQ <= lengths.q() &&
                       first_key + kBlockKv <= lengths.kv();
    const int rows = min(kBlockQ, lengths.q() - row.first_query);
    bool any = false, all = true;
#pragma unroll 1
    for (int first = 0; first < rows; first += kRows) {
      const int query = row.first_query + first + lane % kRows;
      const bool present = query < lengths.q();
#pragma unroll 1
      for (int key = own_key; key < own_key + kLaneKeys; key += kStep) {
        const auto rule = Rule::of_row(p, lengths, row.sequence, row.head,
                                       present ? query : lengths.q() - 1, key);
        if (whole) {
#pragma unroll
          for (int i = 0; i < kStep; ++i) {
            const bool seen = rule(i);
            any |= seen;
            all &= seen;
          }
        } else if (present) {
#pragma unroll 1
          for (int i = 0; i < min(kStep, lengths.kv() - key); ++i) {
            const bool seen = rule(i);
            any |= seen;
            all &= seen;
          }
        }
        if (any_lane(any) && any_lane(!all)) return kPartialBlock;
      }
    }
    return any_lane(any) ? kFullBlock : kAbsentBlock;
  }

  /// The bits of entry blockIdx.x, if it has some.
  template <class Params>
  ATTNFORGE_DEVICE static void write_bits(const Params& p) {
    constexpr int kWords = mask_words_per_row(kBlockKv);
    const int entry = int(blockIdx.x), bit_block = p.bit_blocks[entry];
    if (bit_block < 0) return;
    int low = 0, high = p.rows;  // the entry's row is in [low, high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (p.row_begin[middle] <= entry ? low : high) = middle;
    }
    const Row row(p, low);
    const FixedLengths lengths(p, row.sequence);
    const int first_key = (p.columns[entry] >> 1) * kBlockKv, lane = int(threadIdx.x) % 32;
    u32* const bits = p.bits + i64(bit_block) * kBlockQ * kWords;
#pragma unroll 1
    for (int word = int(threadIdx.x) / 32; word < kBlockQ * kWords; word += kWarps) {
      const int query = row.first_query + word / kWords;
      const int offset = word % kWords * 32 + lane, key = first_key + offset;
      const bool there = query < lengths.q() && key < lengths.kv() && offset < kBlockKv;
      const bool seen = there && Rule::of_pair(p, lengths, row.sequence, row.head, query, key);
      const u32 bits_of_word = lanes_where(seen);
      if (lane == 0) bits[word] = bits_of_word;
    }
  }
};

}  // namespace attnforge
