// kernel.cuh - the step before a backward kernel: of each query row its lse in base 2 and delta,
// the sum over columns of dout * o, - dlse; and zeros where
// dq is added up or counted.
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
  // A row has so many neighbouring lanes of a warp, each with a vector of 8 columns.
  static constexpr int kVectors = ceil_div(C.head_dim_v, 8);
  static constexpr int kLanes = kVectors > 16 ? 32 : next_power_of_two(kVectors);
  static_assert(kVectors <= kLanes);
  // Rows of a thread, with all their loads in flight at once.
  static constexpr int kSteps = 4, kRowsApart = kThreads / kLanes;
  static constexpr int kRows = kSteps * kRowsApart;  // of a block
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
    const int first_row = (int(blockIdx.x) - of_all_heads * blocks_of_head) * kRows +
                          int(threadIdx.x) / kLanes;
    const int sequence = of_all_heads / p.num_heads_q;
    const int head = of_all_heads - sequence * p.num_heads_q;
    const int lane = int(threadIdx.x) % kLanes;
    const Lengths lengths(params, sequence);

    float delta[kSteps];
    products(params, lengths, head, first_row, lane, delta);
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        delta[s] += __shfl_xor_sync(0xffffffffu, delta[s], distance);
        // Each lane writes other rows.
#pragma unroll
    for (int first = 0; first < kSteps; first += kLanes) {
      float own = delta[first];
#pragma unroll
      for (int l = 1; l < min(kLanes, kSteps - first); ++l)
        own = lane == l ? delta[first + l] : own;
      if (lane < kSteps - first)
        write(params, lengths, of_all_heads, head, first_row + (first + lane) * kRowsApart, own);
    }
  }

 private:
  /// A lane's part of the sums over columns of dout * o.
  template <class Params>
  ATTNFORGE_DEVICE static void products(const Params& params, const Lengths& lengths, int head,
                                        int first_row, int lane, float (&sums)[kSteps]) {
    constexpr int kBytes = element_bytes(C.dtype_o), kWords = 8 * kBytes / 4;
    // No branch between loads: rows and lanes that are not there take what another takes.
    const int vector = min(lane, kVectors - 1);
    u32 o[kSteps][kWords] = {}, dout[kSteps][kWords] = {};
    if (lengths.q() > 0) {
#pragma unroll
      for (int s = 0; s < kSteps; ++s) {
        const i64 row = lengths.q_begin() + min(first_row + s * kRowsApart, lengths.q() - 1);
        const auto load = [&](const TensorRef& tensor, u32(&words)[kWords]) {
          load_words<C.alignment>(head_pointer<C.dtype_o>(tensor, lengths.batch(), head) +
                                      (row * tensor.stride_row + vector * 8) * kBytes,
                                  words);
        };
        load(params.fwd.o, o[s]);
        load(params.dout, dout[s]);
      }
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const bool present = first_row + s * kRowsApart < lengths.q() && lane < kVectors;
      float a[8], b[8];
      to_floats<C.dtype_o>(o[s], a);
      to_floats<C.dtype_o>(dout[s], b);
      sums[s] = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[s] += a[i] * b[i];
      if (!present) sums[s] = 0.0f;
    }
  }

  template <class Params>
  ATTNFORGE_DEVICE static void write(const Params& params, const Lengths& lengths, int of_all_heads,
                                     int head, int row, float delta) {
    const FwdParams& p = params.fwd;
    const BwdScratch& scratch = params.scratch;
    if (row >= scratch.rows_padded) return;
    float lse = __int_as_float(0xff800000);  // -inf
    if (row < lengths.q()) {
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

  template <class Params>
  ATTNFORGE_DEVICE static void set_zeros(const Params& params) {
    float4* const to = static_cast<float4*>(params.zeros_begin);
    const u64 stride = u64(gridDim.x) * kThreads;
    for (u64 i = u64(blockIdx.x) * kThreads + threadIdx.x; i < params.zeros; i += stride)
      to[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
};

}  // namespace attnforge
