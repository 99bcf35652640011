// params.h - which query tiles a key tile has something to do with under a block mask or a mask's
// text: bits that a step writes and a backward kernel after it reads.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Sizes of the bits, which lie in the workspace and end where BwdScratch::lse_log2 begins: of key
/// tile n of mask head h of mask sequence b the list (b * heads + h) * key_tiles + n. A list has
/// `words` times two words: bit m % 32 of word 2 * (m / 32) says whether the mask lets a row of
/// query tile m see a key of the tile, that of the next word whether it may hide one.
struct QueryTileBits {
  int heads, batch;  // of the mask
  int key_tiles;     // of a head
  int words;
  int query_tiles;

  ATTNFORGE_CONSTEXPR static QueryTileBits of(int mask_heads, int mask_batch, int seqlen_kv,
                                              int block_n, int seqlen_q, int block_m) {
    const int query_tiles = ceil_div(seqlen_q, block_m);
    return {mask_heads, mask_batch, ceil_div(seqlen_kv, block_n), ceil_div(query_tiles, 32),
            query_tiles};
  }
  ATTNFORGE_CONSTEXPR i64 lists() const { return i64(batch) * heads * key_tiles; }
  ATTNFORGE_CONSTEXPR i64 bytes() const { return aligned(lists() * words * 2 * i64(sizeof(u32))); }

  /// Before these a step may write a bit for each pair of tiles of which a text hides some: of a
  /// list and a query tile block_n rows, one a key, bit q % 32 of word q / 32 for query q.
  ATTNFORGE_CONSTEXPR static int pair_row_words(int block_m) { return ceil_div(block_m, 32); }
  ATTNFORGE_CONSTEXPR i64 pair_word(i64 list, int query_tile, int block_m, int block_n) const {
    return (list * query_tiles + query_tile) * block_n * pair_row_words(block_m);
  }
  ATTNFORGE_CONSTEXPR i64 pair_bytes(int block_m, int block_n) const {
    return aligned(pair_word(lists(), 0, block_m, block_n) * i64(sizeof(u32)));
  }
  ATTNFORGE_CONSTEXPR static i64 aligned(i64 bytes) { return (bytes + 255) / 256 * 256; }
};

}  // namespace attnforge
