// step_gradient.cuh - the step after a backward kernel that sums up the gradients of sinks: of a
// head the sum over all its rows of -exp(sink - lse) delta, in an order that sizes alone decide.
#pragma once

#include "backward/params.h"
#include "backward/scratch.cuh"
#include "parts/sinks/params.h"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

/// C is the config of the kernel before, Lengths its piece. A block has a head. Rows of the scratch
/// that are no sequence's have an lse of +inf and a delta of 0, and add nothing.
template <auto C, class Lengths>
struct BwdSinks {
  static constexpr int kThreads = 256;
  static constexpr float kLog2e = 1.44269504088896340736f;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    const SinkParams& sinks = params.sinks;
    const int head = int(blockIdx.x);
    // Rounded as lse is, so that a sink that is all of it has a probability of 1.
    const float sink = __fmul_rn(sinks.logits[head], kLog2e);
    await_previous_grid();
    const float sum = sum_of_block(sum_of_thread(params, head, sink));
    if (threadIdx.x == 0) params.dsinks[head] = (C.accumulate ? params.dsinks[head] : 0.0f) - sum;
  }

 private:
  /// A thread's sum, over every kThreads-th four rows.
  template <class Params>
  ATTNFORGE_DEVICE static float sum_of_thread(const Params& params, int head, float sink) {
    const BwdScratch& scratch = params.scratch;
    const int fours = scratch.rows_padded / 4;
    if (fours == 0) return 0.0f;
    const int stored = is_packed<Lengths>() ? 1 : params.fwd.batch;
    float sum = 0.0f;
    int sequence = int(threadIdx.x) / fours, four = int(threadIdx.x) % fours;
#pragma unroll 4
    while (sequence < stored) {
      const i64 row = (i64(sequence) * params.fwd.num_heads_q + head) * scratch.rows_padded +
                      four * 4;
      const float4 lse = *reinterpret_cast<const float4*>(scratch.lse_log2 + row);
      const float4 delta = *reinterpret_cast<const float4*>(scratch.delta + row);
      sum += exp2f(sink - lse.x) * delta.x + exp2f(sink - lse.y) * delta.y;
      sum += exp2f(sink - lse.z) * delta.z + exp2f(sink - lse.w) * delta.w;
      sequence += kThreads / fours;
      four += kThreads % fours;
      if (four >= fours) four -= fours, ++sequence;
    }
    return sum;
  }

  /// In thread 0.
  ATTNFORGE_DEVICE static float sum_of_block(float sum) {
    __shared__ float of_warps[kThreads / 32];
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2)
      sum += __shfl_xor_sync(0xffffffffu, sum, distance);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return 0.0f;
#pragma unroll
    for (int warp = 1; warp < kThreads / 32; ++warp) sum += of_warps[warp];
    return sum;
  }
};

}  // namespace attnforge
