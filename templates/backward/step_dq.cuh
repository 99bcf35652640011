// step_dq.cuh - the step after a backward kernel that adds up dq in fp32: scales the sums and
// writes them to dq, or adds them to what it holds. Where the kernel counts what it has added, the
// step runs at the same time as its last blocks, a head at a time, on SMs that have none.
#pragma once

#include "backward/dq_tile.cuh"
#include "backward/params.h"
#include "backward/scratch.cuh"
#include "backward/turns.cuh"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"

namespace attnforge {

/// C is the config of the kernel before, Lengths its piece, DqTile says where it put the elements
/// of a tile (backward/dq_tile.cuh). kTurns: counters of each (templates/backward/host.h).
/// kListed: parts_of_head is of a key tile, of which a head has as many as bwd_rows has listed.
template <auto C, class Lengths, class DqTile, int kTurns, bool kListed = false>
struct BwdDq {
  static constexpr int kThreads = 256;  // of a block, which has a tile
  static constexpr int kDtype = C.gradient_dtype(C.dtype);
  // A thread takes a patch at a time.
  static constexpr int kPatchRows = DqTile::kQuad.rows(), kRowStep = DqTile::kQuad.row_step();
  static constexpr int kHalves = DqTile::kQuad.halves();
  static constexpr unsigned kFirstColumns = DqTile::kQuad.first_columns();
  static constexpr int kColumnPatches = ceil_div(C.head_dim, 8 * kHalves);
  static constexpr int kRowPatches = DqTile::kRows / kPatchRows;
  static_assert(C.head_dim % 8 == 0 && DqTile::kColumns >= kColumnPatches * 8 * kHalves);
  static_assert(kRowPatches % DqTile::kNeighbours == 0 && kRowPatches % kRowStep == 0);

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    const FwdParams& p = params.fwd;
    const BwdScratch& scratch = params.scratch;
    const int tiles_of_head = scratch.rows_padded / DqTile::kRows;
    const int of_all_heads = quotient(blockIdx.x, tiles_of_head);
    const int stored = quotient(of_all_heads, p.num_heads_q);
    const int head = of_all_heads - stored * p.num_heads_q;
    const SequenceTile place = scratch_tile<Lengths>(
        params, stored, DqTile::kRows, int(blockIdx.x) - of_all_heads * tiles_of_head);
    const int first_row = place.tile * DqTile::kRows;
    const Lengths lengths(params, place.sequence);
    const int rows = min(DqTile::kRows, lengths.q() - first_row);
    const float* const tile = scratch.dq_sums +
                              i64(blockIdx.x) * (DqTile::kRows * DqTile::kColumns);
    char* const to = head_pointer<kDtype>(params.dq, lengths.batch(), head) +
                     (lengths.q_begin() + first_row) * params.dq.stride_row * element_bytes(kDtype);

    const int group = quotient(p.num_heads_q, p.num_heads_kv);
    await_sums(params, stored * p.num_heads_kv + quotient(head, group));
    const bool holds_sums = kTurns == 0 ||
                            static_cast<const int*>(params.zeros_begin)[blockIdx.x * kTurns];
#pragma unroll 1
    for (int i = int(threadIdx.x); i < kRowPatches * kColumnPatches; i += kThreads) {
      const int column = i / DqTile::kNeighbours % kColumnPatches * 8 * kHalves;
      const int patch = i / (DqTile::kNeighbours * kColumnPatches) * DqTile::kNeighbours +
                        i % DqTile::kNeighbours;
      const int row = patch / kRowStep * (kRowStep * kPatchRows) + patch % kRowStep;
      if (row >= rows) continue;
      float x[kPatchRows][kHalves][8] = {};
      if (holds_sums) load(tile + DqTile::offset(row, column), x);
#pragma unroll
      for (int r = 0; r < kPatchRows; ++r)
#pragma unroll
        for (int h = 0; h < kHalves; ++h)
          store(params, to, row + r * kRowStep, column + h * 8, rows, x[r][h]);
    }
    // This grid must not end before the one before it.
    if (blockIdx.x == gridDim.x - 1) await_previous_grid();
  }

 private:
  /// Until the sums of a K/V head's queries are complete.
  template <class Params>
  ATTNFORGE_DEVICE static void await_sums(const Params& params, int kv_head) {
    if (params.parts_of_head == 0) {
      await_previous_grid();
    } else {
      if (threadIdx.x == 0) await_count(params.added + kv_head, parts_of_head(params));
      __syncthreads();
    }
  }
  template <class Params>
  ATTNFORGE_DEVICE static int parts_of_head(const Params& params) {
    if constexpr (kListed) return params.parts_of_head * *listed_key_tiles<Lengths>(params);
    return params.parts_of_head;
  }
  /// The patch that begins at `from`.
  ATTNFORGE_DEVICE static void load(const float* from, float (&x)[kPatchRows][kHalves][8]) {
    constexpr DqQuad quad = DqTile::kQuad;  // an array is indexed: here, not in static memory
#pragma unroll
    for (int column = 0; column < 8; ++column) {
      if (!(kFirstColumns >> column & 1)) continue;
      const float4 four = *reinterpret_cast<const float4*>(from + DqTile::offset(0, column));
      const float f[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
      for (int i = 0; i < 4; ++i)
        x[quad.row[i] / kRowStep][quad.column[i] / 8][column + quad.column[i] % 8] = f[i];
    }
  }
  template <class Params>
  ATTNFORGE_DEVICE static void store(const Params& params, char* to, int row, int column, int rows,
                                     float (&x)[8]) {
    if (row >= rows || column >= C.head_dim) return;
    char* const at = to + (row * params.dq.stride_row + column) * element_bytes(kDtype);
    float before[8] = {};
    if constexpr (C.accumulate) load_floats<kDtype, C.alignment>(at, before);
#pragma unroll
    for (int c = 0; c < 8; ++c) x[c] = x[c] * params.fwd.softmax_scale + before[c];
    store_floats<kDtype, C.alignment>(at, x);
  }
};

}  // namespace attnforge
