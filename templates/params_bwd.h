// params_bwd.h - the parts of a backward kernel's one argument. Compiled by g++ (launch, bind) and
// NVRTC (kernel).
#pragma once

#include "base.cuh"
#include "params_fwd.h"

namespace attnforge {

struct BwdParams {
  FwdParams fwd;  // q, k, v, o, lse: all inputs
  TensorRef dout, dq, dk, dv;
  const float* dlse;
  i64 dlse_stride_batch;
  i64 dlse_stride_head;
};

struct BwdScratch {
  float* lse_log2;
  float* delta;
  float* dq_sums;
  int rows_padded;
};

}  // namespace attnforge
