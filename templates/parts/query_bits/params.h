// params.h - which query tiles a key tile has something to do with under a block mask: bits that a
// step writes and a backward kernel after it reads.
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

  ATTNFORGE_CONSTEXPR static QueryTileBits of(int mask_heads, int mask_batch, int seqlen_kv,
                                              int block_n, int seqlen_q, int block_m) {
    return {mask_heads, mask_batch, ceil_div(seqlen_kv, block_n),
            ceil_div(ceil_div(seqlen_q, block_m), 32)};
  }
  ATTNFORGE_CONSTEXPR i64 lists() const { return i64(batch) * heads * key_tiles; }
  ATTNFORGE_CONSTEXPR i64 bytes() const {
    constexpr i64 kAligned = 256;
    return (lists() * words * 2 * i64(sizeof(u32)) + kAligned - 1) / kAligned * kAligned;
  }
};

}  // namespace attnforge
