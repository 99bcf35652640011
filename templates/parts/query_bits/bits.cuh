// bits.cuh - where a kernel finds the bits of parts/query_bits/params.h.
#pragma once

#include "parts/query_bits/params.h"

namespace attnforge {

/// The bits in the argument of a backward kernel, or of a step around one, whose problem has a
/// block mask.
template <int kBlockM, int kBlockN, class Params>
ATTNFORGE_DEVICE QueryTileBits query_tile_bits(const Params& params) {
  return QueryTileBits::of(params.mask.mask_heads, params.mask.mask_batch, params.fwd.seqlen_kv,
                           kBlockN, params.fwd.seqlen_q, kBlockM);
}
template <class Params>
ATTNFORGE_DEVICE u32* query_tile_words(const Params& params, const QueryTileBits& bits) {
  return reinterpret_cast<u32*>(reinterpret_cast<char*>(params.scratch.lse_log2) - bits.bytes());
}

}  // namespace attnforge
