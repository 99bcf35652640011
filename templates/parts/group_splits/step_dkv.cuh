// step_dkv.cuh - the step after a backward kernel whose blocks share the query heads of their keys:
// adds up the parts of dk and dv, always in the same order, and writes the sums or adds them to
// what is there.
#pragma once

#include "backward/key_tile.cuh"
#include "parts/group_splits/params.h"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// C is the config of the kernel before, Lengths its piece. The argument has GroupSplitParams.
template <auto C, class Lengths>
struct BwdDkv {
  static constexpr int kThreads = 256;
  static constexpr int kRows = 16;  // keys of a block
  // Columns by eights: those of dk, then those of dv.
  static constexpr int kOfDk = C.head_dim / 8, kOfBoth = kOfDk + C.head_dim_v / 8;
  static_assert(C.head_dim % 8 == 0 && C.head_dim_v % 8 == 0);

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    const int heads = params.fwd.num_heads_kv * (is_packed<Lengths>() ? 1 : params.fwd.batch);
    const int tile = quotient(blockIdx.x, heads), head = int(blockIdx.x) - tile * heads;
    const KeyTile<Params, Lengths> keys(params, {tile, head}, kRows);
    const i64 first_row = params.splits.first_row(head, 0) + keys.lengths.kv_begin();
    await_previous_grid();
#pragma unroll 1
    for (int i = int(threadIdx.x); i < kRows * kOfBoth; i += kThreads) {
      const int key = keys.first_key + i / kOfBoth, column = i % kOfBoth;
      if (key >= keys.lengths.kv()) return;
      if (column < kOfDk)
        add_up<C.head_dim, C.dtype_k>(params, keys, params.splits.dk, params.dk, first_row + key,
                                      key, column * 8, params.fwd.softmax_scale);
      else
        add_up<C.head_dim_v, C.dtype_v>(params, keys, params.splits.dv, params.dv, first_row + key,
                                        key, (column - kOfDk) * 8, 1.0f);
    }
  }

 private:
  /// Eight columns of a key, whose row in the first part is `row`.
  template <int kColumns, int kOperand, class Params>
  ATTNFORGE_DEVICE static void add_up(const Params& params, const KeyTile<Params, Lengths>& keys,
                                      const float* parts, const TensorRef& to, i64 row, int key,
                                      int column, float factor) {
    constexpr int kDtype = C.gradient_dtype(kOperand);
    const float* from = parts + row * kColumns + column;
    float sums[8] = {};
#pragma unroll 4
    for (int share = 0; share < params.splits.parts; ++share) {
      float x[8];
      load_floats<kFp32, 16>(reinterpret_cast<const char*>(from), x);
      unrolled<8>([&](int c) { sums[c] += x[c]; });
      from += i64(params.splits.rows) * kColumns;
    }
    char* const at = static_cast<char*>(to.data) +
                     (keys.key_offset(to, key) + column) * element_bytes(kDtype);
    float before[8] = {};
    if constexpr (C.accumulate) load_floats<kDtype, C.alignment>(at, before);
    unrolled<8>([&](int c) { sums[c] = fmaf(sums[c], factor, before[c]); });
    store_floats<kDtype, C.alignment>(at, sums);
  }
};

}  // namespace attnforge
