// products.cuh - the products of a warp of bwd_mma_sm80 for scores, dP, dV and dK.
#pragma once

#include "base.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/share.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"

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

}  // namespace attnforge
