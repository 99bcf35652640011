// lists.cuh - from the states of all blocks to the lists of those that are present: rows are
// counted, counts become beginnings, rows are written. The same lists in every run.
#pragma once

#include "base.cuh"
#include "ops/block_lists/params.h"
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

}  // namespace attnforge
