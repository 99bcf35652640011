// packed_lengths.cuh - Lengths of sequences that lie one after another in tensors [tokens, heads,
// dim].
#pragma once

#include "base.cuh"
#include "params_lengths.h"

namespace attnforge {

/// The strides between batches are not read; lse is [heads, tokens]. The argument has a
/// LengthsParams `lengths` with both arrays.
struct PackedLengths {
  int first_q, first_kv, num_q, num_kv;

  template <class Params>
  ATTNFORGE_DEVICE PackedLengths(const Params& params, int sequence)
      : first_q(params.lengths.q[sequence]),
        first_kv(params.lengths.kv[sequence]),
        num_q(params.lengths.q[sequence + 1] - first_q),
        num_kv(params.lengths.kv[sequence + 1] - first_kv) {}

  /// See FixedLengths.
  static constexpr bool kAnythingAfter = true;

  ATTNFORGE_DEVICE int q() const { return num_q; }
  ATTNFORGE_DEVICE int kv() const { return num_kv; }
  ATTNFORGE_DEVICE static constexpr int batch() { return 0; }
  ATTNFORGE_DEVICE int q_begin() const { return first_q; }
  ATTNFORGE_DEVICE int kv_begin() const { return first_kv; }
};

}  // namespace attnforge
