// packed_lengths.cuh - Lengths of sequences one after another in tensors [tokens, heads, dim].
#pragma once

#include "parts/lengths/clear_rows_of_v.cuh"
#include "parts/lengths/params.h"
#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// The strides between batches are not read; lse is [heads, tokens]. The argument has a
/// LengthsParams `lengths` with both arrays.
struct PackedLengths {
  int first_q, first_kv, num_q, num_kv;

  PackedLengths() = default;
  template <class Params>
  ATTNFORGE_DEVICE PackedLengths(const Params& params, int sequence)
      : first_q(params.lengths.q[sequence]),
        first_kv(params.lengths.kv[sequence]),
        num_q(params.lengths.q[sequence + 1] - first_q),
        num_kv(params.lengths.kv[sequence + 1] - first_kv) {}

  /// See FixedLengths.
  static constexpr bool kAnythingAfter = true;
  /// Sequences lie one after another, in one tensor, and each begins where these say.
  static constexpr bool kOneAfterAnother = true;
  template <class Params>
  ATTNFORGE_DEVICE static const int* q_begins(const Params& params) {
    return params.lengths.q;
  }
  template <class Params>
  ATTNFORGE_DEVICE static const int* kv_begins(const Params& params) {
    return params.lengths.kv;
  }

  ATTNFORGE_DEVICE int q() const { return num_q; }
  ATTNFORGE_DEVICE int kv() const { return num_kv; }
  ATTNFORGE_DEVICE static constexpr int batch() { return 0; }
  ATTNFORGE_DEVICE int q_begin() const { return first_q; }
  ATTNFORGE_DEVICE int kv_begin() const { return first_kv; }

  // Beside a query tile in shared memory, for warps that do not read the arrays: kWords words.
  static constexpr int kWords = 4;
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to + 0, first_q);
    store_shared(to + 4, first_kv);
    store_shared(to + 8, num_q);
    store_shared(to + 12, num_kv);
  }
  template <class Params>
  ATTNFORGE_DEVICE static PackedLengths load(const Params&, int, u32 from) {
    PackedLengths lengths;
    lengths.first_q = from_lane_0(load_shared(from + 0));
    lengths.first_kv = from_lane_0(load_shared(from + 4));
    lengths.num_q = from_lane_0(load_shared(from + 8));
    lengths.num_kv = from_lane_0(load_shared(from + 12));
    return lengths;
  }
};

}  // namespace attnforge
