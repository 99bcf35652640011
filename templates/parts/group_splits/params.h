// params.h - parts of dK and dV, where several blocks share the query heads of a tile of keys.
// Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"

namespace attnforge {

/// Share s of a K/V head has its query heads from s * heads on, the last one those that are left.
struct GroupSplitParams {
  // fp32, [K/V heads of all stored sequences, count, rows, head_dim and head_dim_v]
  float *dk, *dv;
  int heads;
  int count;      // shares of a K/V head
  int rows;       // of a part: all keys of a sequence, or of all packed ones
  int unused[9];  // to a multiple of what any argument is aligned to: no part lies in padding

  /// Number of the row of a share that is its first key's.
  ATTNFORGE_CONSTEXPR i64 first_row(int kv_head, int share) const {
    return (i64(kv_head) * count + share) * rows;
  }
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithGroupSplits : Params {
  GroupSplitParams splits;
};

}  // namespace attnforge
