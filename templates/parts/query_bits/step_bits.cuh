// step_bits.cuh - a step before a backward kernel under a block mask: for each key tile, which
// query tiles the mask lets see some of it, and of which it may hide some. The transposed list, by
// tiles of the kernel in place of blocks.
#pragma once

#include "parts/block_mask/row.cuh"
#include "parts/query_bits/bits.cuh"
#include "parts/query_bits/params.h"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

/// A warp has two words of a list, a lane one query tile.
template <int kBlockM, int kBlockN, int kBlockQ, int kBlockKv>
struct BwdTiles {
  static constexpr int kThreads = 256;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    await_previous_grid();
    start_next_grid();
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN>(params);
    const i64 index = (i64(blockIdx.x) * kThreads + threadIdx.x) / 32;
    const int lane = int(threadIdx.x) % 32;
    const i64 list = index / bits.words;
    if (list >= bits.lists()) return;
    const int query_tile = int(index - list * bits.words) * 32 + lane;
    const int key_tile = int(list % bits.key_tiles);
    const int mask_row = int(list / bits.key_tiles) * params.mask.q_blocks;

    const int first_column = key_tile * kBlockN / kBlockKv;
    const int last_column = (min((key_tile + 1) * kBlockN, params.fwd.seqlen_kv) - 1) / kBlockKv;
    const int first_row = query_tile * kBlockM / kBlockQ;
    const int last_row = (min((query_tile + 1) * kBlockM, params.fwd.seqlen_q) - 1) / kBlockQ;
    bool seen = false, hides = false;
#pragma unroll 1
    for (int row = first_row; row <= last_row; ++row) {
      const BlockColumns columns(params.mask, mask_row + row);
      int full = 0;
#pragma unroll 1
      for (int e = columns.entry_from(first_column); e < columns.end; ++e) {
        const int column = params.mask.columns[e];
        if (column / 2 > last_column) break;
        seen = true;
        full += column % 2 == 0;
      }
      hides = hides || full != last_column - first_column + 1;
    }
    const u32 seen_word = __ballot_sync(~0u, seen), hides_word = __ballot_sync(~0u, hides);
    u32* const to = query_tile_words(params, bits) + index * 2;
    if (lane == 0) to[0] = seen_word;
    if (lane == 1) to[1] = hides_word;
  }
};

}  // namespace attnforge
