// fixed_lengths.cuh - Lengths of tensors whose sequences are all as long as the problem says.
#pragma once

#include "base_params.h"

namespace attnforge {

/// Lengths and beginning of one sequence. All are constants or lie in the kernel's argument: they
/// cost no register.
struct FixedLengths {
  const FwdParams& p;
  int sequence;

  FixedLengths(const FixedLengths&) = default;
  template <class Params>
  ATTNFORGE_DEVICE FixedLengths(const Params& params, int index) : p(params.fwd), sequence(index) {}

  /// Assigns lengths of the same kernel.
  ATTNFORGE_DEVICE FixedLengths& operator=(const FixedLengths& other) {
    sequence = other.sequence;
    return *this;
  }

  /// Whether rows after the last of a sequence hold anything, NaN too, where TMA reads them.
  static constexpr bool kAnythingAfter = false;

  ATTNFORGE_DEVICE int q() const { return p.seqlen_q; }
  ATTNFORGE_DEVICE int kv() const { return p.seqlen_kv; }
  /// Where the sequence lies in a tensor: in which batch, and from which row on.
  ATTNFORGE_DEVICE int batch() const { return sequence; }
  ATTNFORGE_DEVICE static constexpr int q_begin() { return 0; }
  ATTNFORGE_DEVICE static constexpr int kv_begin() { return 0; }

  /// Words that a query tile's lengths take in shared memory, where only one warp reads them from
  /// elsewhere; 0: every warp does.
  static constexpr int kWords = 0;
  ATTNFORGE_DEVICE void store(u32) const {}
  template <class Params>
  ATTNFORGE_DEVICE static FixedLengths load(const Params& params, int sequence, u32) {
    return {params, sequence};
  }
};

}  // namespace attnforge
