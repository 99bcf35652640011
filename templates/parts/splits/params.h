// params.h - partial results of query rows whose keys are split among several blocks, and
// of what merges them. Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"

namespace attnforge {

/// Partial results. For each row, and each of its splits: o over the keys of the split, divided by
/// the sum of their probabilities, and lse. A row of a split that sees no key has lse = -inf and
/// any o. Rows are numbered as those of an lse [batch, num_heads_q, rows_of_head] are.
struct PartialParams {
  float* o;    // [rows, splits, head_dim_v]
  float* lse;  // [rows, splits], natural log
  int splits;  // of every row; where they follow the lengths, as many for each sequence as all have
               // together, and o is [num_heads_q, rows_of_head, items, head_dim_v]
  int rows_of_head;    // in a tensor: seqlen_q, or the tokens of all sequences
  int row_warps;       // of the step that merges
  int tensors;         // one after another: of each sequence, or one of all
  int at_once;         // splits of a head that have a place on the GPU, or of fewer bits fill the
                       // last round of blocks; blocks that have shares
  u32 splits_inverse;  // splits_inverse_of(splits)
  int team;            // blocks that go through the same key tiles of as many heads
  int unused[5];       // to a multiple of what any argument is aligned to: no part lies in padding
};

/// Sequences whose splits the blocks of a grid share out by themselves.
inline constexpr int kMostSharingSequences = 256;

/// 2^32 / splits, rounded up, for 2 to 256 splits: the upper half of its product with up to 2^24
/// tiles is tiles / splits. No problem has more tiles.
ATTNFORGE_CONSTEXPR u32 splits_inverse_of(int splits) {
  return u32(((u64{1} << 32) + u64(splits) - 1) / u64(splits));
}

/// The argument of a kernel whose own is a Params, and which writes or merges partial results.
template <class Params>
struct WithPartials : Params {
  PartialParams partials;
};

/// How a block of the step that merges shares its rows: each has 1, 2, 4 or 8 warps, and a warp
/// about four splits.
struct MergeShape {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps;
  int warps;  // of a row

  ATTNFORGE_CONSTEXPR static MergeShape of(int splits) {
    return {splits > 16 ? 8 : splits > 8 ? 4 : splits > 4 ? 2 : 1};
  }
  ATTNFORGE_CONSTEXPR int rows() const { return kWarps / warps; }
  /// Blocks for which registers must suffice, where rows have `columns` columns.
  ATTNFORGE_CONSTEXPR static int blocks_per_sm(int columns) { return columns > 128 ? 2 : 4; }
  /// For rows of `columns` columns.
  ATTNFORGE_CONSTEXPR static int smem_bytes(int columns) {
    return kWarps * (columns + 2) * int(sizeof(float));
  }
};

}  // namespace attnforge
