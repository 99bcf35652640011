// params.h - the argument of the kernel that merges attention to parts of the keys. Compiled
// by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"
#include "base_params.h"

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

}  // namespace attnforge
