// packed_queries.cuh - Lengths of sequences whose queries lie one after another, in tensors
// [tokens, heads, dim], and whose keys do not: they lie in pages.
#pragma once

#include "parts/lengths/used_lengths.cuh"

namespace attnforge {

/// The argument has a LengthsParams `lengths`: of queries where each sequence begins, of keys how
/// many each has; null: all. What looks for keys asks the sequence, not batch().
struct PackedQueries {
  int first_q, num_q, num_kv;

  PackedQueries() = default;
  template <class Params>
  ATTNFORGE_DEVICE PackedQueries(const Params& params, int sequence)
      : first_q(params.lengths.q[sequence]),
        num_q(params.lengths.q[sequence + 1] - first_q),
        num_kv(UsedLengths::used(params.lengths.kv, sequence, params.fwd.seqlen_kv)) {}

  /// See FixedLengths.
  static constexpr bool kAnythingAfter = true;

  ATTNFORGE_DEVICE int q() const { return num_q; }
  ATTNFORGE_DEVICE int kv() const { return num_kv; }
  ATTNFORGE_DEVICE static constexpr int batch() { return 0; }
  ATTNFORGE_DEVICE int q_begin() const { return first_q; }
  ATTNFORGE_DEVICE static constexpr int kv_begin() { return 0; }

  // Beside a query tile in shared memory, for warps that do not read the arrays: kWords words.
  static constexpr int kWords = 3;
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to + 0, first_q);
    store_shared(to + 4, num_q);
    store_shared(to + 8, num_kv);
  }
  template <class Params>
  ATTNFORGE_DEVICE static PackedQueries load(const Params&, int, u32 from) {
    PackedQueries lengths;
    lengths.first_q = from_lane_0(load_shared(from + 0));
    lengths.num_q = from_lane_0(load_shared(from + 4));
    lengths.num_kv = from_lane_0(load_shared(from + 8));
    return lengths;
  }
};

}  // namespace attnforge
