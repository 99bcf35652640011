// bwd_scratch.cuh - where the rows of a sequence lie in the scratch of a backward kernel.
#pragma once

#include "base.cuh"
#include "params_bwd.h"
#include "params_fwd.h"
#include "tile/packed_tiles.cuh"

namespace attnforge {

/// Number `number` of the tiles of `rows` queries that lie in one piece in BwdScratch: those of a
/// sequence `stored`, or of all packed ones.
template <class Lengths, class Params>
ATTNFORGE_DEVICE SequenceTile scratch_tile(const Params& params, int stored, int rows, int number) {
  if constexpr (is_packed<Lengths>())
    return packed_tile(Lengths::q_begins(params), params.fwd.batch, rows, number);
  else
    return {stored, number};
}

/// The row of BwdScratch that has a sequence's first query of a head. Query tiles have kBlockM
/// rows.
template <int kBlockM, class Lengths>
ATTNFORGE_DEVICE i64 first_scratch_row(const FwdParams& p, const BwdScratch& scratch,
                                       const Lengths& lengths, int sequence, int head) {
  i64 row = (i64(lengths.batch()) * p.num_heads_q + head) * scratch.rows_padded;
  if constexpr (is_packed<Lengths>())
    row += first_packed_tile(lengths.q_begin(), sequence, kBlockM) * kBlockM;
  return row;
}

}  // namespace attnforge
