// kernel.cuh - the step before a backward kernel: of each query row its lse in base 2 and delta,
// the sum over columns of dout * o, - dlse; and zeros where
// dq is added up or where the states of its tiles are.
#pragma once

#include "base.cuh"
#include "params_bwd.h"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"

namespace attnforge {

/// C is the config of the kernel after it, Lengths its piece.
template <auto C, class Lengths>
struct BwdRows {
  static constexpr int kThreads = 256;
  // A row has so many neighbouring lanes of a warp, each with vectors of 8 columns.
  static constexpr int kVectors = ceil_div(C.head_dim_v, 8);
  static constexpr int kLanes = kVectors > 16 ? 32 : next_power_of_two(kVectors);
  static constexpr int kRows = kThreads / kLanes;  // of a block
  static constexpr float kLog2e = 1.44269504088896340736f;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    await_previous_grid();
    start_next_grid();
    set_zeros(params);

    const FwdParams& p = params.fwd;
    const BwdScratch& scratch = params.scratch;
    const int blocks_of_head = ceil_div(scratch.rows_padded, kRows);
    const int of_all_heads = int(blockIdx.x) / blocks_of_head;
    const int row = (int(blockIdx.x) - of_all_heads * blocks_of_head) * kRows +
                    int(threadIdx.x) / kLanes;
    const int sequence = of_all_heads / p.num_heads_q;
    const int head = of_all_heads - sequence * p.num_heads_q;
    const int lane = int(threadIdx.x) % kLanes;
    const Lengths lengths(params, sequence);
    const bool present = row < lengths.q();

    float delta = present ? product(params, lengths, head, row, lane) : 0.0f;
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      delta += __shfl_xor_sync(0xffffffffu, delta, distance);

    if (lane != 0 || row >= scratch.rows_padded) return;
    float lse = __int_as_float(0xff800000);  // -inf
    if (present) {
      const i64 at = lengths.q_begin() + row;
      lse = p.lse[lengths.batch() * p.lse_stride_batch + head * p.lse_stride_head + at];
      if (params.dlse != nullptr)
        delta -= params.dlse[lengths.batch() * params.dlse_stride_batch +
                             head * params.dlse_stride_head + at];
    }
    const i64 to = i64(of_all_heads) * scratch.rows_padded + row;
    const bool sees_nothing = lse == __int_as_float(0xff800000);
    scratch.lse_log2[to] = sees_nothing ? -lse : lse * kLog2e;
    // Whatever o and dout hold there, p is 0.
    scratch.delta[to] = sees_nothing ? 0.0f : delta;
  }

 private:
  /// A lane's part of the sum over columns of dout * o.
  template <class Params>
  ATTNFORGE_DEVICE static float product(const Params& params, const Lengths& lengths, int head,
                                        int row, int lane) {
    const auto row_of = [&](const TensorRef& tensor) {
      return head_pointer<C.dtype_o>(tensor, lengths.batch(), head) +
             (lengths.q_begin() + row) * tensor.stride_row * element_bytes(C.dtype_o);
    };
    const char *o_row = row_of(params.fwd.o), *dout_row = row_of(params.dout);
    float sum = 0.0f;
#pragma unroll
    for (int vector = lane; vector < kVectors; vector += kLanes) {
      float o[8], dout[8];
      load_floats<C.dtype_o, C.alignment>(o_row + vector * 8 * element_bytes(C.dtype_o), o);
      load_floats<C.dtype_o, C.alignment>(dout_row + vector * 8 * element_bytes(C.dtype_o), dout);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += o[i] * dout[i];
    }
    return sum;
  }

  template <class Params>
  ATTNFORGE_DEVICE static void set_zeros(const Params& params) {
    float4* const to = static_cast<float4*>(params.zeros_begin);
    const u64 stride = u64(gridDim.x) * kThreads;
    for (u64 i = u64(blockIdx.x) * kThreads + threadIdx.x; i < params.zeros; i += stride)
      to[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
};

}  // namespace attnforge
