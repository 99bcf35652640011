// dq_product.cuh - dQ of a tile of queries in bwd_mma_sm80: the product of dS, which is in shared
// memory, and K, by all warps or by those that are free, added to the sums in global memory.
#pragma once

#include "backward/query_walk.cuh"
#include "base.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/shared.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/reduction.cuh"

namespace attnforge {

template <BwdMmaSm80Config C>
struct BwdMmaSm80DqProduct {
  using Shared = BwdMmaSm80Shared<C>;
  using QkRows = typename Shared::QkRows;
  using DsRows = typename Shared::DsRows;

  /// dQ of a tile's rows += dS K, in units of softmax_scale. Warps share its rows and columns: each
  /// has every kRowWarps-th fragment of rows, and of columns every kColumnWarps-th of 16.
  template <class Params, class Work>
  ATTNFORGE_DEVICE static void add(const Params& params, const Work& work, const Shared& smem,
                                   const QueryPlace& place, int ds_stage) {
    constexpr int kRowWarps = C.dq_row_warps(), kColumnWarps = C.num_warps / kRowWarps;
    constexpr int kRows = C.dq_rows(), kColumns = C.dq_columns();
    const int row_warp = Shared::warp() / kColumnWarps, column_warp = Shared::warp() % kColumnWarps;
    const auto has_column = [&](int c) {  // the same in all lanes
      constexpr int kAll = C.qk_chunks() / 2;
      return (c + 1) * kColumnWarps <= kAll || column_warp + c * kColumnWarps < kAll;
    };
    const u32 ds = DsRows::further(Shared::template query_rows<DsRows>(smem.ds(ds_stage)),
                                   row_warp * 2);
    const u32 k = QkRows::further(Shared::template query_columns<QkRows>(smem.k()),
                                  column_warp * 2);
    float x[kRows][2 * kColumns][4] = {};
    // Operands of the next 16 keys are read while these are used, where registers allow it.
    constexpr int kTurns = kRows + kColumns <= 4 ? 2 : 1, kAll = C.block_n / 16;
    static_assert(kAll % kTurns == 0, "the last turn of a round is the last of all");
    u32 a[kTurns][kRows][4], b[kTurns][kColumns][4];
    const auto read = [&](int n, int turn) {
#pragma unroll
      for (int f = 0; f < kRows; ++f)
        ldmatrix_x4_trans(a[turn][f],
                          DsRows::further(ds, 2 * f * kRowWarps) + n * 16 * DsRows::kRowBytes);
#pragma unroll
      for (int c = 0; c < kColumns; ++c)
        if (has_column(c))
          ldmatrix_x4_trans(b[turn][c],
                            QkRows::further(k, 2 * c * kColumnWarps) + n * 16 * QkRows::kRowBytes);
    };
    if constexpr (kTurns == 2) read(0, 0);
#pragma unroll(kTurns == 2 ? 1 : 2)
    for (int first = 0; first < kAll; first += kTurns) {
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int next = first + turn + kTurns - 1;
        if (next < kAll) read(next, (turn + 1) % kTurns);
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          if (!has_column(c)) continue;
#pragma unroll
          for (int f = 0; f < kRows; ++f) {
            mma_m16n8k16<C.dtype>(x[f][2 * c], a[turn][f], b[turn][c][0], b[turn][c][1]);
            mma_m16n8k16<C.dtype>(x[f][2 * c + 1], a[turn][f], b[turn][c][2], b[turn][c][3]);
          }
        }
      }
    }
    using Layout = BwdMmaSm80DqTile<C>;
    float* const sums_of_tile = params.scratch.dq_sums +
                                work.scratch_row(params.scratch, place) * Layout::kColumns +
                                Shared::lane() * Layout::kLaneFloats;
#pragma unroll
    for (int f = 0; f < kRows; ++f)
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        if (!has_column(c)) continue;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int unit = column_warp + c * kColumnWarps;
          float* const to = sums_of_tile +
                            Layout::fragment(row_warp + f * kRowWarps, 2 * unit + half);
          if constexpr (Layout::kLaneFloats == 4) {
            reduce_add_4(to, x[f][2 * c + half]);
          } else {
#pragma unroll
            for (int i = 0; i < 4; ++i) reduce_add(to + i * 32, x[f][2 * c + half][i]);
          }
        }
      }
  }
};

}  // namespace attnforge
