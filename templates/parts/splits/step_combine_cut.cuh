// step_combine_cut.cuh - the step after persistent blocks that have shares of all key tiles:
// merges the partial results of the query tiles that shares cut. The kernel has stored the others.
#pragma once

#include "parts/splits/params.h"
#include "parts/splits/step_combine.cuh"
#include "parts/splits/walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// C is the config of the kernel before, Lengths and Splits its pieces. Blocks of a column of the
/// grid share the rows of a query tile, columns the tiles.
template <auto C, class Lengths, class Splits>
struct CombineCut {
  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    Splits::count_all(params);
    const int tiles = params.fwd.batch * Splits::heads(params);
#pragma unroll 1
    for (int tile = block_index(); tile < tiles; tile += int(gridDim.x)) {
      const int sequence = quotient(tile, Splits::heads(params));
      const int first_head = (tile - sequence * Splits::heads(params)) * C.pack_gqa;
      // Lengths are there before the kernel starts: what they decide is found while it runs.
      const SplitsOfRow its = Splits::of_row(params, sequence, first_head, 0);
      await_previous_grid();  // whatever is found: the next kernel waits for this one alone
      if (its.count != 1) merge(params, sequence, first_head, its);
    }
  }

 private:
  /// The rows of a query tile, in the order in which partial results have them.
  template <class Params>
  ATTNFORGE_DEVICE static void merge(const Params& params, int sequence, int first_head,
                                     const SplitsOfRow& its) {
    const PartialParams& partials = params.partials;
    const Lengths lengths(params, sequence);
    const int rows = lengths.q() * C.pack_gqa, warps = partials.row_warps;
    const int rows_at_once = MergeShape::kWarps / warps;
#pragma unroll 1
    for (int i = split_index() * rows_at_once; i < rows; i += int(gridDim.y) * rows_at_once) {
      const int row = i + thread_index() / 32 / warps;
      const i64 place = its.first + row;
      const StridedParts<kFp32> parts{partials.o + place * C.head_dim_v, partials.lse + place,
                                      its.apart * C.head_dim_v, its.apart, its.count};
      merge_to_output<C>(params, parts, row < rows, sequence, first_head + row % C.pack_gqa,
                         lengths.q_begin() + row / C.pack_gqa);
      if (warps > 1) __syncthreads();  // the next rows take the same shared memory
    }
  }
};

}  // namespace attnforge
