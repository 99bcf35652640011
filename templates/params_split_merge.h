// params_split_merge.h - what a kernel needs that splits keys and merges the parts itself, without
// a step after it. Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"

namespace attnforge {

inline constexpr int kCountedTiles = 125;  // query tiles whose blocks can be counted

/// A set of counters (generator/launch.h): zeros before and after the kernel, but for `runs`.
struct MergeCounters {
  u32 unused;
  u32 tiles;                   // query tiles that have ended
  u32 runs;                    // kernels that ended
  u32 arrived[kCountedTiles];  // blocks of each tile that have ended
};

/// Shared memory of a block that merges: whether it is the last, and weights of each warp's row.
struct LastBlockMemory {
  static constexpr int kFlagBytes = 16, kWeights = 256;  // of a row: kMostSplits
  ATTNFORGE_HOST_DEVICE static constexpr int bytes(int threads) {
    return kFlagBytes + threads / 32 * kWeights * 4;
  }
};

/// How the blocks of a cluster share the rows of a query tile that they merge: by quads of columns,
/// which are numbered row after row. A row of kColumns has kPitch numbers.
template <int kColumns>
struct ClusterShare {
  static constexpr int kQuads = kColumns / 4, kPitch = next_power_of_two(kQuads);
  /// Rows that a block has, in whole or in part.
  ATTNFORGE_HOST_DEVICE static constexpr int rows(int share_log2) {
    return kPitch >> share_log2 > 0 ? 1 : (1 << share_log2) / kPitch;
  }
};

/// The argument of a kernel whose tiles have a cluster each, or several.
template <class Params>
struct WithClusterShare : Params {
  int share_log2;  // of the quads of columns that a block merges
  int unused[3];
};

/// The argument of a kernel whose last block of a tile merges.
template <class Params>
struct WithMergeCounters : Params {
  MergeCounters* counters;
  i64 unused;  // to a multiple of what any argument is aligned to
};

}  // namespace attnforge
