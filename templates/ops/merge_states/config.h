// config.h - what is searched of merge_states, and its argument.
#pragma once

#include "base_params.h"
#include "parts/splits/params.h"
#include "shape.h"

namespace attnforge {

inline constexpr int kMostStates = 32;  // attnforge::kMostMergedStates

/// o and lse of queries that attended to some keys.
struct StateRef {
  TensorRef o;
  float* lse;
  i64 lse_stride_batch;
  i64 lse_stride_head;
};

/// Rows are ordered [batch, num_heads, seqlen].
struct MergeParams {
  StateRef parts[kMostStates];
  StateRef result;
  int count, batch, num_heads, seqlen;
  int row_warps;  // that share the parts of a row
};

struct MergeStatesConfig : Shape {
  int row_warps;  // that share the parts of a row, 1, 2, 4 or 8; the launch says it

  ATTNFORGE_CONSTEXPR static int num_threads() { return MergeShape::kThreads; }
  ATTNFORGE_CONSTEXPR static int blocks_per_sm() { return 1; }
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return MergeShape::smem_bytes(head_dim); }
};

}  // namespace attnforge
