// params.h - the parts of a backward kernel's one argument.
#pragma once

#include "base_params.h"

namespace attnforge {

ATTNFORGE_CONSTEXPR int next_power_of_two(int a) {
  int power = 1;
  while (power < a) power *= 2;
  return power;
}

/// Shapes: dout as o, dq, dk and dv as q, k and v.
struct GradientsParams {
  TensorRef dout, dq, dk, dv;
  const float* dlse;  // as lse; null: none
  i64 dlse_stride_batch;
  i64 dlse_stride_head;
  float* dsinks;  // [num_heads_q]; null: none
};

/// All tensors of fwd come in, o and lse too.
struct TensorsOfBwd {
  FwdParams fwd;
};
struct BwdParams : TensorsOfBwd, GradientsParams {};

/// What the steps around a backward kernel and the kernel itself tell one another, in the
/// workspace. Rows are those of a sequence and query head, padded to whole query tiles; packed
/// sequences, each padded, lie one after another as if they were one. Where they begin:
/// backward/scratch.cuh.
struct BwdScratch {
  float* lse_log2;  // lse * log2(e); +inf for a row that sees no key, and after the last: exp2(s -
                    // inf) is 0
  float* delta;     // the sum over columns of dout * o, - dlse; 0 after the last row
  float* dq_sums;   // tile after tile, in each as its DqTile says (backward/dq_tile.cuh)
  int rows_padded;  // of a head: of a sequence, or of all packed ones
  int dq_columns;   // of a row of dq_sums
};

/// Of ListedKeyTile, which are behind the deltas of packed sequences where a kernel wants them
/// (backward/scratch.cuh).
ATTNFORGE_CONSTEXPR int listed_key_tile_bytes() { return 32; }

/// The argument of the steps.
struct BwdStepParams : BwdParams {
  BwdScratch scratch;
  void* zeros_begin;  // the turns of tiles of dq_sums, if it has some (templates/backward/host.h)
  u64 zeros;          // how many times 16 bytes are set to zeros from there on
  // For each K/V head of all stored sequences: how many parts of the kernel have added all they do
  // to its queries' dq_sums, and how many do; 0: they are not counted.
  const int* added;
  int parts_of_head;
};

}  // namespace attnforge
