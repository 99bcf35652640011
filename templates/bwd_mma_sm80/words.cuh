// words.cuh - P and dS on their way from one warp of bwd_mma_sm80 to others, through shared memory.
#pragma once

#include "base.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/share.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/shared_memory.cuh"

namespace attnforge {

/// This warp's keys and a step's queries, or half of them, in a tile of dS or P: two queries a
/// word.
template <BwdMmaSm80Config C>
struct BwdMmaSm80Words {
  using Share = BwdMmaSm80Share<C>;
  using Rounded = typename Share::Rounded;
  using DsRows = typename Share::Shared::DsRows;
  static constexpr int kKeyFragments = Share::kKeyFragments, kStepFragments = Share::kStepFragments;

  u32 own;   // the first of this lane
  u32 rows;  // what this lane says to ldmatrix

  ATTNFORGE_DEVICE BwdMmaSm80Words(u32 tile, int step, int half = 0)
      : own(DsRows::further(tile + DsRows::offset(Share::lane_key(), 0), fragment(step, half)) +
            Share::lane() % 4 * 4),
        rows(DsRows::further(Share::template own_rows<DsRows>(tile), fragment(step, half))) {}
  ATTNFORGE_DEVICE static int fragment(int step, int half) {
    return (step * C.halves() + half) * kStepFragments;
  }
  /// Of the queries of fragments j and j + 1.
  ATTNFORGE_DEVICE void store(const Rounded& x, int j) const {
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        store_shared(DsRows::further(own, j + i / 2) + (f * 16 + i % 2 * 8) * DsRows::kRowBytes,
                     int(x[f][j + i / 2][i % 2]));
  }
  ATTNFORGE_DEVICE void store(const Rounded& x) const {
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) store(x, j);
  }
  ATTNFORGE_DEVICE void load(Rounded& x) const {
#pragma unroll
    for (int j = 0; j < kStepFragments; j += 2) load(x, j);
  }
  ATTNFORGE_DEVICE void load(Rounded& x, int j) const {
#pragma unroll
    for (int f = 0; f < kKeyFragments; ++f) {
      u32 words[4];
      ldmatrix_x4(words, DsRows::further(rows, j) + f * 16 * DsRows::kRowBytes);
#pragma unroll
      for (int i = 0; i < 4; ++i) x[f][j + i / 2][i % 2] = words[i];
    }
  }
};

}  // namespace attnforge
