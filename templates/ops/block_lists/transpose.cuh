// transpose.cuh - lists by rows to lists by columns: the blocks are marked in a table that
// ops/block_lists/lists.cuh then lists, and the bits follow them.
#pragma once

#include "base.cuh"
#include "ops/block_lists/params.h"
#include "parts/block_mask/params.h"
#include "ptx/shuffle.cuh"

namespace attnforge {

struct TransposedLists {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;

  /// A warp a row of the lists that there are.
  ATTNFORGE_DEVICE static void mark(const TransposedListsParams& p) {
    const int row = own_warp();
    if (row >= p.masks * p.q_blocks) return;
    u8* const states = p.states + i64(row / p.q_blocks) * p.kv_blocks * p.q_blocks;
    for (int e = p.row_begin[row] + own_lane(); e < p.row_begin[row + 1]; e += 32) {
      const int column = p.columns[e];
      states[i64(column >> 1) * p.q_blocks + row % p.q_blocks] = column & 1 ? kPartialBlock
                                                                            : kFullBlock;
    }
  }

  /// A warp a column: an entry has the block of bits that it had in its row.
  ATTNFORGE_DEVICE static void find_bits(const TransposedListsParams& p) {
    const int list = own_warp();
    if (list >= p.masks * p.kv_blocks) return;
    const int first_row = list / p.kv_blocks * p.q_blocks, column = list % p.kv_blocks;
    for (int e = p.column_begin[list] + own_lane(); e < p.column_begin[list + 1]; e += 32) {
      const int row = first_row + (p.rows[e] >> 1);
      int low = p.row_begin[row], high = p.row_begin[row + 1];  // it is in [low, high)
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        ((p.columns[middle] >> 1) <= column ? low : high) = middle;
      }
      p.bit_blocks_of_columns[e] = p.bit_blocks[low];
    }
  }

  /// A warp 32 x 32 bits of a block.
  ATTNFORGE_DEVICE static void transpose_bits(const TransposedListsParams& p) {
    const int lane = own_lane();
    const int words = mask_words_per_row(p.block_kv), words_after = mask_words_per_row(p.block_q);
    const i64 tile = i64(blockIdx.x) * kWarps + threadIdx.x / 32;
    const i64 block = tile / (words * words_after);
    if (block >= p.blocks_of_bits) return;
    const int i = int(tile % words_after), j = int(tile / words_after % words);
    const int row = i * 32 + lane;
    const u32 word = row < p.block_q ? p.bits[(block * p.block_q + row) * words + j] : 0;
    u32 own = 0;
#pragma unroll
    for (int bit = 0; bit < 32; ++bit) {
      const u32 column = lanes_where(word >> bit & 1);
      if (lane == bit) own = column;
    }
    const int row_after = j * 32 + lane;
    if (row_after < p.block_kv)
      p.bits_of_columns[(block * p.block_kv + row_after) * words_after + i] = own;
  }

 private:
  ATTNFORGE_DEVICE static int own_lane() { return int(threadIdx.x) % 32; }
  ATTNFORGE_DEVICE static int own_warp() {
    return int(blockIdx.x) * kWarps + int(threadIdx.x) / 32;
  }
};

}  // namespace attnforge
