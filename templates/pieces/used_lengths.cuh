// used_lengths.cuh - Lengths of padded tensors: the first rows of each sequence count.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_lengths.h"

namespace attnforge {

/// The argument has a LengthsParams `lengths`; an array that is null means full length. Rows after
/// a length are neither read nor written.
struct UsedLengths {
  int sequence, num_q, num_kv;

  template <class Params>
  ATTNFORGE_DEVICE UsedLengths(const Params& params, int index)
      : sequence(index),
        num_q(used(params.lengths.q, index, params.fwd.seqlen_q)),
        num_kv(used(params.lengths.kv, index, params.fwd.seqlen_kv)) {}

  ATTNFORGE_DEVICE static int used(const int* lengths, int sequence, int full) {
    return lengths == nullptr ? full : lengths[sequence];
  }

  /// See FixedLengths.
  static constexpr bool kAnythingAfter = true;

  ATTNFORGE_DEVICE int q() const { return num_q; }
  ATTNFORGE_DEVICE int kv() const { return num_kv; }
  ATTNFORGE_DEVICE int batch() const { return sequence; }
  ATTNFORGE_DEVICE static constexpr int q_begin() { return 0; }
  ATTNFORGE_DEVICE static constexpr int kv_begin() { return 0; }
};

}  // namespace attnforge
