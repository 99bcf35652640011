// bits.cuh - where a kernel finds the bits of parts/query_bits/params.h.
#pragma once

#include "parts/query_bits/params.h"

namespace attnforge {

/// Of how many heads and sequences a block mask is.
struct MasksOfBlocks {
  template <class Params>
  ATTNFORGE_DEVICE static int heads(const Params& params) {
    return params.mask.mask_heads;
  }
  template <class Params>
  ATTNFORGE_DEVICE static int batch(const Params& params) {
    return params.mask.mask_batch;
  }
};
/// And a mask's text: of each, where what it says depends on that, else of one.
template <bool kOfHeads, bool kOfBatch>
struct MasksOfText {
  template <class Params>
  ATTNFORGE_DEVICE static int heads(const Params& params) {
    return kOfHeads ? params.fwd.num_heads_q : 1;
  }
  template <class Params>
  ATTNFORGE_DEVICE static int batch(const Params& params) {
    return kOfBatch ? params.fwd.batch : 1;
  }
};

/// The bits in the argument of a backward kernel, or of a step around one.
template <int kBlockM, int kBlockN, class Masks = MasksOfBlocks, class Params>
ATTNFORGE_DEVICE QueryTileBits query_tile_bits(const Params& params) {
  return QueryTileBits::of(Masks::heads(params), Masks::batch(params), params.fwd.seqlen_kv,
                           kBlockN, params.fwd.seqlen_q, kBlockM);
}
template <class Params>
ATTNFORGE_DEVICE u32* query_tile_words(const Params& params, const QueryTileBits& bits) {
  return reinterpret_cast<u32*>(reinterpret_cast<char*>(params.scratch.lse_log2) - bits.bytes());
}
/// Those of pairs, of a list and a query tile.
template <int kBlockM, int kBlockN, class Params>
ATTNFORGE_DEVICE u32* pair_words(const Params& params, const QueryTileBits& bits, i64 list,
                                 int query_tile) {
  char* const end = reinterpret_cast<char*>(query_tile_words(params, bits));
  return reinterpret_cast<u32*>(end - bits.pair_bytes(kBlockM, kBlockN)) +
         bits.pair_word(list, query_tile, kBlockM, kBlockN);
}

}  // namespace attnforge
