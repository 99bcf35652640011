// params_fwd.h - the one argument of a forward kernel. Compiled by g++ (bind) and NVRTC (kernel), so they cannot disagree.
#pragma once

#include "base.cuh"

namespace attnforge {

/// A tensor in device memory; strides in elements, the last dimension contiguous.
struct TensorRef {
  void* data;
  i64 stride_batch;
  i64 stride_row;   // between sequence positions
  i64 stride_head;
};

/// Shapes: q [batch, seqlen_q, num_heads_q, head_dim], k [batch, seqlen_kv, num_heads_kv, head_dim],
/// v [batch, seqlen_kv, num_heads_kv, head_dim_v], o [batch, seqlen_q, num_heads_q, head_dim_v], in any order of strides.
struct FwdParams {
  TensorRef q, k, v, o;
  float* lse;             // [batch, num_heads_q, seqlen_q], natural log; null: not wanted
  i64 lse_stride_batch;
  i64 lse_stride_head;
  int batch;
  int num_heads_q;
  int num_heads_kv;
  int seqlen_q;
  int seqlen_kv;
  int window_left;        // keys before the query's position that it sees; kOpenWindow: all
  int window_right;       // keys after it
  float softmax_scale;
  float softcap;          // 0: none
};

/// Larger than any length, small enough that position + kOpenWindow does not overflow.
inline constexpr int kOpenWindow = 1 << 30;

}  // namespace attnforge
