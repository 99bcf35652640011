// kernel.cuh - the step after a backward kernel that adds up dq in fp32: scales the sums and writes
// them to dq, or adds them to what it holds.
#pragma once

#include "base.cuh"
#include "params_bwd.h"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"
#include "tile/store_floats.cuh"

namespace attnforge {

/// C is the config of the kernel before, Lengths its piece, DqTile says where it put the elements
/// of a tile (tile/dq_tile.cuh). kTileStates: how many ints say of each tile whether anything was
/// stored there (templates/host/bwd_params.h); 0: all tiles hold sums.
template <auto C, class Lengths, class DqTile, int kTileStates>
struct BwdDq {
  static constexpr int kThreads = 256;  // of a block, which has a tile
  static constexpr int kColumns = 8;    // of a row that a thread takes at a time
  static constexpr int kVectors = C.head_dim / kColumns;
  static constexpr int kDtype = C.gradient_dtype(C.dtype);
  static_assert(C.head_dim % kColumns == 0 && DqTile::kColumns >= C.head_dim);

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    const FwdParams& p = params.fwd;
    const BwdScratch& scratch = params.scratch;
    const int tiles_of_head = scratch.rows_padded / DqTile::kRows;
    const int of_all_heads = int(blockIdx.x) / tiles_of_head;
    const int first_row = (int(blockIdx.x) - of_all_heads * tiles_of_head) * DqTile::kRows;
    const int sequence = of_all_heads / p.num_heads_q;
    const int head = of_all_heads - sequence * p.num_heads_q;
    const Lengths lengths(params, sequence);
    const int rows = min(DqTile::kRows, lengths.q() - first_row);
    const float* const tile = scratch.dq_sums +
                              i64(blockIdx.x) * (DqTile::kRows * DqTile::kColumns);
    char* const to = head_pointer<kDtype>(params.dq, lengths.batch(), head) +
                     (lengths.q_begin() + first_row) * params.dq.stride_row * element_bytes(kDtype);

    await_previous_grid();
    const bool holds_sums = kTileStates == 0 ||
                            static_cast<const int*>(params.zeros_begin)[blockIdx.x * kTileStates];
#pragma unroll 4
    for (int i = int(threadIdx.x); i < rows * kVectors; i += kThreads) {
      const int row = i / kVectors, column = i % kVectors * kColumns;
      float x[kColumns] = {};
      if (holds_sums) load(tile, row, column, x);
      char* const at = to + (row * params.dq.stride_row + column) * element_bytes(kDtype);
      float before[kColumns] = {};
      if constexpr (C.accumulate) load_floats<kDtype, C.alignment>(at, before);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) x[c] = x[c] * p.softmax_scale + before[c];
      store_floats<kDtype, C.alignment>(at, x);
    }
  }

 private:
  ATTNFORGE_DEVICE static constexpr int vector() {
    if constexpr (requires { DqTile::kVector; })
      return DqTile::kVector;
    else
      return 1;
  }

  ATTNFORGE_DEVICE static void load(const float* tile, int row, int column, float (&x)[kColumns]) {
    constexpr int kVector = vector();
#pragma unroll
    for (int c = 0; c < kColumns; c += kVector) {
      const float* from = tile + DqTile::offset(row, column + c);
      if constexpr (kVector == 4) {
        const float4 four = *reinterpret_cast<const float4*>(from);
        x[c] = four.x, x[c + 1] = four.y, x[c + 2] = four.z, x[c + 3] = four.w;
      } else if constexpr (kVector == 2) {
        const float2 two = *reinterpret_cast<const float2*>(from);
        x[c] = two.x, x[c + 1] = two.y;
      } else {
        x[c] = *from;
      }
    }
  }
};

}  // namespace attnforge
