// lists.cuh - from the states of all blocks to the lists of those that are present: rows are
// counted, counts become beginnings, rows are written. The same lists in every run. And from lists
// by rows to lists by columns: blocks are marked in a table of states, and the bits follow them.
#pragma once

#include "ops/block_lists/params.h"
#include "parts/block_mask/params.h"
#include "ptx/shuffle.cuh"

namespace attnforge {

struct BlockLists {
  static constexpr int kThreads = 256, kWarps = kThreads / 32;  // of count() and write()
  static constexpr int kBeginThreads = 1024, kBeginWarps = kBeginThreads / 32, kPerThread = 4;

  /// A warp a row: how many blocks are present, and partial, in the places of their beginnings.
  ATTNFORGE_DEVICE static void count(const BlockListsParams& p) {
    const int row = own_row(), lane = int(threadIdx.x) % 32;
    if (row >= p.rows) return;
    const u8* const states = p.states + i64(row) * p.kv_blocks;
    int present = 0, partial = 0;
#pragma unroll 4
    for (int column = lane; column < p.kv_blocks; column += 32) {
      const u8 state = states[column];
      present += state != kAbsentBlock;
      partial += state == kPartialBlock;
    }
    present = sum_of_lanes(present);
    partial = sum_of_lanes(partial);
    if (lane != 0) return;
    p.row_begin[row] = present;
    p.partial_begin[row] = partial;
  }

  /// One block. Both sums in one number: neither is beyond 2^31.
  ATTNFORGE_DEVICE static void begin(const BlockListsParams& p) {
    __shared__ u64 of_warps[kBeginWarps];
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    u64 before = 0;
    for (int first = 0; first < p.rows; first += kBeginThreads * kPerThread) {
      const int own_first = first + int(threadIdx.x) * kPerThread;
      u64 own[kPerThread], sum = 0;
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        const int row = own_first + i;
        own[i] = row < p.rows ? u64(p.row_begin[row]) | u64(p.partial_begin[row]) << 32 : 0;
        sum += own[i];
      }
      u64 through = sum;
#pragma unroll
      for (int distance = 1; distance < 32; distance *= 2) {
        const u64 lower = __shfl_up_sync(~0u, through, distance);
        if (lane >= distance) through += lower;
      }
      __syncthreads();
      if (lane == 31) of_warps[warp] = through;
      __syncthreads();
      u64 at = before + through - sum;
#pragma unroll 1
      for (int w = 0; w < kBeginWarps; ++w) {
        if (w < warp) at += of_warps[w];
        before += of_warps[w];
      }
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) {
        if (own_first + i < p.rows) put(p, own_first + i, at);
        at += own[i];
      }
    }
    if (threadIdx.x == 0) put(p, p.rows, before);
  }

  /// A warp a row: the columns of its blocks that are present.
  ATTNFORGE_DEVICE static void write(const BlockListsParams& p) {
    const int row = own_row(), lane = int(threadIdx.x) % 32;
    if (row >= p.rows) return;
    const u8* const states = p.states + i64(row) * p.kv_blocks;
    const u32 lower_lanes = (1u << lane) - 1;
    int entry = p.row_begin[row], bit_block = p.partial_begin[row];
    for (int first = 0; first < p.kv_blocks; first += 32) {
      const int column = first + lane;
      const u8 state = column < p.kv_blocks ? states[column] : kAbsentBlock;
      const u32 present = lanes_where(state != kAbsentBlock),
                partial = lanes_where(state == kPartialBlock);
      if (state != kAbsentBlock) {
        const int at = entry + __popc(present & lower_lanes);
        p.columns[at] = column * 2 + (state == kPartialBlock);
        if (p.bit_blocks != nullptr) {
          p.bit_blocks[at] = state == kPartialBlock ? bit_block + __popc(partial & lower_lanes)
                                                    : -1;
        }
      }
      entry += __popc(present);
      bit_block += __popc(partial);
    }
  }

 private:
  ATTNFORGE_DEVICE static int own_row() { return int(blockIdx.x) * kWarps + int(threadIdx.x) / 32; }
  ATTNFORGE_DEVICE static int sum_of_lanes(int x) { return int(__reduce_add_sync(~0u, u32(x))); }
  ATTNFORGE_DEVICE static void put(const BlockListsParams& p, int row, u64 sums) {
    p.row_begin[row] = int(u32(sums));
    p.partial_begin[row] = int(sums >> 32);
  }
};

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
