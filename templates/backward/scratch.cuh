// scratch.cuh - where the rows of a sequence lie in the scratch of a backward kernel.
#pragma once

#include "backward/packed_tiles.cuh"
#include "backward/params.h"
#include "base.cuh"
#include "base_params.h"

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

/// Where a sequence's queries begin among the rows of BwdScratch that a head has. Query tiles have
/// kBlockM rows.
template <int kBlockM, class Lengths>
ATTNFORGE_DEVICE int scratch_row_in_head(const Lengths& lengths, int sequence) {
  if constexpr (is_packed<Lengths>())
    return first_packed_tile(lengths.q_begin(), sequence, kBlockM) * kBlockM;
  else
    return 0;
}

/// The first row of a head's.
template <class Lengths>
ATTNFORGE_DEVICE i64 scratch_row_of_head(const FwdParams& p, const BwdScratch& scratch,
                                         const Lengths& lengths, int head) {
  return (i64(lengths.batch()) * p.num_heads_q + head) * scratch.rows_padded;
}

}  // namespace attnforge
