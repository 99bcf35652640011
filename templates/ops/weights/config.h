// config.h - the kernels of attention weights, and their argument. Compiled by g++ (launch) and
// NVRTC (kernels).
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

struct WeightsParams {
  FwdParams fwd;    // of which v and o are not looked at
  const int* rows;  // [num_rows], below 0 counted from a sequence's end. Null: row i is query i
  int num_rows;
  // fp32 [batch, num_heads_q, num_rows, seqlen_kv], or of sums [batch, num_heads_q, seqlen_kv].
  float* to;
  i64 stride_batch;
  i64 stride_head;
  i64 stride_row;
};

struct WeightsConfig : Shape {
  int sums;  // 1: over all queries; 0: of listed ones

  static constexpr int kRows = 64, kKeys = 64;  // of a tile
  static constexpr int kThreads = 128;          // a warp 16 queries
  static constexpr int kChunkBytes = 128;       // of a row of q or k, in shared memory at a time
  static constexpr int kPitch = kChunkBytes + 16;

  ATTNFORGE_CONSTEXPR static int num_threads() { return kThreads; }
  ATTNFORGE_CONSTEXPR static int blocks_per_sm() { return 3; }
  ATTNFORGE_CONSTEXPR static int smem_bytes() { return (kRows + kKeys) * kPitch; }
};

}  // namespace attnforge
