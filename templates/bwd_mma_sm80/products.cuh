// products.cuh - the products of a warp of bwd_mma_sm80 for scores, dP, dV and dK, and of all
// warps, or those that are free, for the dQ of a tile of queries.
#pragma once

#include "backward/query_walk.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/share.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/reduction.cuh"

namespace attnforge {

template <BwdMmaSm80Config C>
struct BwdMmaSm80Products {
  using Share = BwdMmaSm80Share<C>;
  using Scores = typename Share::Scores;
  using Rounded = typename Share::Rounded;
  using Sums = typename Share::Sums;
  using Own = typename Share::Own;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;

  /// x = A B^T over kDepth steps of 16: rows of keys by rows of queries. `keys` and `queries` are
  /// addresses of this lane's part of the first operand fragments in tiles of Rows; kInRegs: `own`
  /// has those of keys.
  template <class Rows, int kDepth, bool kInRegs>
  ATTNFORGE_DEVICE static void multiply(Scores& x, Own& own, u32 keys, u32 queries) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      u32 from_smem[kKeyFragments][4];
      if constexpr (!kInRegs) {
#pragma unroll
        for (int f = 0; f < kKeyFragments; ++f)
          ldmatrix_x4(from_smem[f], Rows::further(keys, 2 * d) + f * 16 * Rows::kRowBytes);
      }
#pragma unroll
      for (int j = 0; j < kStepFragments; j += 2) {
        u32 b[4];
        ldmatrix_x4(b, Rows::further(queries, 2 * d) + j * 8 * Rows::kRowBytes);
#pragma unroll
        for (int f = 0; f < kKeyFragments; ++f) {
          const auto& a = kInRegs ? own[kInRegs ? d : 0][f] : from_smem[f];
          if (d == 0) {
            mma_m16n8k16_zero<C.dtype>(x[f][j], a, b[0], b[1]);
            mma_m16n8k16_zero<C.dtype>(x[f][j + 1], a, b[2], b[3]);
          } else {
            mma_m16n8k16<C.dtype>(x[f][j], a, b[0], b[1]);
            mma_m16n8k16<C.dtype>(x[f][j + 1], a, b[2], b[3]);
          }
        }
      }
    }
  }

  /// sum += A B: keys by a step's queries, times queries by kColumns fragments of this warp's
  /// columns, of which `queries` has the first.
  template <class Rows, int kColumns>
  ATTNFORGE_DEVICE static void accumulate(Sums& sum, const Rounded& a, u32 queries) {
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) {
#pragma unroll
      for (int c = 0; c < kColumns; c += 2) {
        u32 b[4];
        if (c + 1 < kColumns)
          ldmatrix_x4_trans(
              b, Rows::further(queries, Share::column_fragment(c)) + j * 8 * Rows::kRowBytes);
        else
          ldmatrix_x2_trans(
              b[0], b[1],
              Rows::further(queries, Share::column_fragment(c)) + j * 8 * Rows::kRowBytes);
#pragma unroll
        for (int f = 0; f < kKeyFragments; ++f) {
          const u32 operand[4] = {a[f][j][0], a[f][j][1], a[f][j + 1][0], a[f][j + 1][1]};
          mma_m16n8k16<C.dtype>(sum[f][c], operand, b[0], b[1]);
          if (c + 1 < kColumns) mma_m16n8k16<C.dtype>(sum[f][c + 1], operand, b[2], b[3]);
        }
      }
    }
  }
};

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
