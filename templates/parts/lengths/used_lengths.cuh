// used_lengths.cuh - Lengths of padded tensors: the first rows of each sequence count.
#pragma once

#include "parts/lengths/clear_rows_of_v.cuh"
#include "parts/lengths/params.h"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// The argument has a LengthsParams `lengths`; an array that is null means full length. Rows after
/// a length are neither read nor written.
struct UsedLengths {
  int sequence, num_q, num_kv;

  UsedLengths() = default;
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

  // Beside a query tile in shared memory, for warps that do not read the arrays: kWords words.
  static constexpr int kWords = 3;
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to + 0, sequence);
    store_shared(to + 4, num_q);
    store_shared(to + 8, num_kv);
  }
  template <class Params>
  ATTNFORGE_DEVICE static UsedLengths load(const Params&, int, u32 from) {
    UsedLengths lengths;
    lengths.sequence = from_lane_0(load_shared(from + 0));
    lengths.num_q = from_lane_0(load_shared(from + 4));
    lengths.num_kv = from_lane_0(load_shared(from + 8));
    return lengths;
  }
};

}  // namespace attnforge
