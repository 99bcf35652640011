// step_combine.cuh - the step after a kernel that splits keys: merges the partial results of rows.
#pragma once

#include "parts/lengths/params.h"
#include "parts/splits/merge_row.cuh"
#include "parts/splits/params.h"
#include "parts/splits/walk.cuh"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"
#include "tile/valueless_score.cuh"

namespace attnforge {

/// Merges the partial results of row `at` of query head `head` of a tensor to o and lse: present:
/// there is such a row. C is the config of the kernel before. All threads of a block call it, each
/// row_warps warps with a row.
template <auto C, class Params>
ATTNFORGE_DEVICE void merge_to_output(const Params& params, const StridedParts<kFp32>& parts,
                                      bool present, int sequence, int head, int at) {
  const FwdParams& p = params.fwd;
  const TensorRef& o = p.o;
  char* const to = static_cast<char*>(o.data) +
                   (sequence * o.stride_batch + at * o.stride_row + head * o.stride_head) *
                       element_bytes(C.dtype_o);
  MergeRow<kFp32, 16, C.head_dim_v>::run(
      parts, present, params.partials.row_warps,
      [&](float& lse) {
        if constexpr (C.sinks != 0) return count_valueless(lse, __ldg(params.sinks.logits + head));
        return 1.0f;
      },
      [&](int column, const float(&x)[4]) {
        store_4<C.dtype_o, C.alignment>(to + column * element_bytes(C.dtype_o), x[0], x[1], x[2],
                                        x[3]);
      },
      [&](float lse) {
        if constexpr (C.lse != 0)
          p.lse[sequence * p.lse_stride_batch + head * p.lse_stride_head + at] = lse;
      });
}

/// C is the config of the kernel before, Lengths and Splits its pieces.
template <auto C, class Lengths, class Splits>
struct Combine {
  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    const FwdParams& p = params.fwd;
    const PartialParams& partials = params.partials;
    const int warps = partials.row_warps;
    Splits::count_all(params);
    const i64 row = i64(blockIdx.x) * (MergeShape::kWarps / warps) + int(threadIdx.x) / 32 / warps;
    const i64 of_all_heads = row / partials.rows_of_head;
    const int at = int(row - of_all_heads * partials.rows_of_head);
    const int sequence = int(of_all_heads / p.num_heads_q);
    const int head = int(of_all_heads - i64(sequence) * p.num_heads_q);
    // Lengths are there before the kernel starts: what they decide is found while it runs.
    const SplitsOfRow its = Splits::of_row(params, sequence, head, at);
    const bool present = at < rows_of(params, sequence);
    const StridedParts<kFp32> parts{partials.o + its.first * C.head_dim_v, partials.lse + its.first,
                                    its.apart * C.head_dim_v, its.apart, its.count};
    await_previous_grid();
    merge_to_output<C>(params, parts, present, sequence, head, at);
  }

 private:
  /// Rows of a head, in the tensor of `sequence` and before it, that some query tile had: where one
  /// tensor has all sequences, up to the end of the last.
  template <class Params>
  ATTNFORGE_DEVICE static int rows_of(const Params& params, int sequence) {
    const int tensors = params.partials.tensors;
    if (sequence >= tensors) return 0;
    const Lengths lengths(params, sequence + params.fwd.batch - tensors);
    return lengths.q_begin() + lengths.q();
  }
};

}  // namespace attnforge
