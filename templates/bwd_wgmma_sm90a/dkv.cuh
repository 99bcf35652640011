// dkv.cuh - where a block of bwd_wgmma_sm90a puts dK and dV of its keys: into the gradients, or
// into parts of a group's heads.
#pragma once

#include "backward/store_gradient.cuh"
#include "bwd_wgmma_sm90a/config.h"
#include "hopper/store_rows_staged.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/reduction.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Of a warpgroup's keys, or of its columns.
template <BwdWgmmaSm90aConfig C, class Warpgroup>
struct BwdWgmmaSm90aDkv {
  using Work = typename Warpgroup::Work;

  static constexpr int kGradientDtype = C.gradient_dtype(C.dtype);
  /// Whether dK and dV are stored by way of K's and V's memory, where the next tile's do not come.
  static constexpr bool kStaged = kGradientDtype != kFp32 && !C.accumulate && !C.persistent() &&
                                  !C.splits_groups();

  const Warpgroup& wg;

  /// Stores the columns from `first_column` on. kChunks: column chunks of `stage`, where rows of
  /// the block's keys lie in shared memory that nobody reads any more.
  template <int kChunks, int kFragments>
  ATTNFORGE_DEVICE void store_dk(const Work& work, u32 stage, int first_column,
                                 const float (&dk)[kFragments][4]) const {
    if constexpr (C.splits_groups())
      store_part<C.head_dim>(work, wg.params.splits.dk, first_column, dk);
    else
      store_sums<kChunks>(rows_of(work, wg.params.dk, first_column), stage, dk, wg.p.softmax_scale);
  }
  template <int kChunks, int kFragments>
  ATTNFORGE_DEVICE void store_dv(const Work& work, u32 stage, int first_column,
                                 const float (&dv)[kFragments][4]) const {
    if constexpr (C.splits_groups())
      store_part<C.head_dim_v>(work, wg.params.splits.dv, first_column, dv);
    else
      store_sums<kChunks>(rows_of(work, wg.params.dv, first_column), stage, dv, 1.0f);
  }
  /// As they are, to rows of kColumns of this share's part, or on top of those of all shares.
  template <int kColumns, int kFragments>
  ATTNFORGE_DEVICE void store_part(const Work& work, float* parts, int first_column,
                                   const float (&sums)[kFragments][4]) const {
    const int key = work.keys.first_key + wg.lane_key(), end = work.keys.lengths.kv();
    const i64 row = wg.params.splits.first_row(work.kv_head(wg.params), work.share(wg.params)) +
                    work.keys.lengths.kv_begin() + key;
    float* const to = parts + row * kColumns + first_column;
    if constexpr (C.adds_parts()) {
      if (work.tiles() <= 0) return;
      unrolled<2>([&](int half) {
        if (key + 8 * half >= end) return;
        float* const of_lane = to + half * 8 * kColumns + wg.lane() % 4 * 2;
        unrolled<kFragments>([&](int j) {
          reduce_add_2(of_lane + j * 8, sums[j][2 * half], sums[j][2 * half + 1]);
        });
      });
    } else {
      char* const bytes = reinterpret_cast<char*>(to);
      store_gradient_row<kFp32, false, 0, 16, kFragments>(sums, 1.0f, bytes, key < end,
                                                          wg.lane() % 4);
      store_gradient_row<kFp32, false, 1, 16, kFragments>(sums, 1.0f, bytes + 8 * kColumns * 4,
                                                          key + 8 < end, wg.lane() % 4);
    }
  }
  /// This warp's 16 keys in a gradient, of which `present` are the sequence's.
  struct GradientRows {
    char* first;
    i64 bytes_apart;
    int present;
  };
  ATTNFORGE_DEVICE GradientRows rows_of(const Work& work, const TensorRef& to,
                                        int first_column) const {
    constexpr int kBytes = element_bytes(kGradientDtype);
    const int key = work.keys.first_key + wg.warp_keys();
    return {static_cast<char*>(to.data) + (work.keys.key_offset(to, key) + first_column) * kBytes,
            to.stride_row * kBytes, min(work.keys.lengths.kv() - key, 16)};
  }
  template <int kChunks, int kFragments>
  ATTNFORGE_DEVICE void store_sums(const GradientRows& rows, u32 stage,
                                   const float (&sums)[kFragments][4], float factor) const {
    if constexpr (kStaged) {
      store_rows_staged<kGradientDtype, kChunks, C.key_chunk_bytes()>(
          sums, factor, stage + wg.warp_keys() * C.kSwizzle, rows.first, rows.bytes_apart,
          rows.present, wg.lane());
    } else {
      const int row = MmaFragment::row(wg.lane());
      char* const to = rows.first + row * rows.bytes_apart;
      store_gradient_row<kGradientDtype, C.accumulate != 0, 0, 16, kFragments>(
          sums, factor, to, row < rows.present, wg.lane() % 4);
      store_gradient_row<kGradientDtype, C.accumulate != 0, 1, 16, kFragments>(
          sums, factor, to + 8 * rows.bytes_apart, row + 8 < rows.present, wg.lane() % 4);
    }
  }
};

}  // namespace attnforge
