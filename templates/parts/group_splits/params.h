// params.h - parts of dK and dV, where several blocks share the query heads of a tile of keys: one
// to which all add, or one a share. Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"

namespace attnforge {

/// Share s of a K/V head has its query heads from s * heads on, the last one those that are left.
struct GroupSplitParams {
  // fp32, [K/V heads of all stored sequences, parts, rows, head_dim and head_dim_v]
  float *dk, *dv;
  int heads;
  int count;      // shares of a K/V head
  int parts;      // of a K/V head: count, or 1, which is zeros before the kernel; 0 without queries
  int rows;       // of a part: all keys of a sequence, or of all packed ones
  int unused[8];  // to a multiple of what any argument is aligned to: no part lies in padding

  /// Number of the row of a share's part that is its first key's.
  ATTNFORGE_CONSTEXPR i64 first_row(int kv_head, int share) const {
    return (i64(kv_head) * parts + (parts > 1 ? share : 0)) * rows;
  }
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithGroupSplits : Params {
  GroupSplitParams splits;
};

}  // namespace attnforge
