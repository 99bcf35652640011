// warp_fma.cuh - a warp's tile on the CUDA cores: outer products of fp32 numbers, tiled in
// registers. 4 x 8 lanes share rows and keys, then rows and columns.
#pragma once

#include "fwd_regtile_f32/config.h"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// warp_m rows times step_n keys, then times warp_columns columns. Lane 8i + j has rows i, i + 4,
/// ..., keys j, j + 8, ..., and chunks j, j + 8, ... of 4 columns. Probabilities go from the lanes
/// that have their keys to all 8 of a row through shared memory of the warp's own.
template <FwdRegtileF32Config C>
struct FmaWarp {
  static constexpr int kRows = C.thread_rows();
  static constexpr int kLanes = 8;
  static constexpr int kColumns = C.thread_columns();
  static constexpr int kQkRowBytes = C.qk_chunks() * 16, kVRowBytes = C.v_chunks() * 16;
  static constexpr int kWide = kRows < 4 ? kRows : 4;  // probabilities in one load

  struct Scores {
    static constexpr int kKeys = C.step_n / 8;
    float s[kRows][kKeys];
    ATTNFORGE_DEVICE auto& all() { return s; }
    ATTNFORGE_DEVICE float& at(int r, int j) { return s[r][j]; }
    ATTNFORGE_DEVICE float at(int r, int j) const { return s[r][j]; }
  };

  u32 q_lane, k_lane, v_lane;  // offsets of this lane in the rows of a tile
  u32 p_write, p_read;
  float o[kRows][kColumns];

  ATTNFORGE_DEVICE FmaWarp(int columns, u32 p_buffer) {
    const int lane = thread_index() % 32;
    q_lane = lane / 8 * kQkRowBytes;
    k_lane = lane % 8 * kQkRowBytes;
    v_lane = columns * 4 + lane % 8 * 16;
    p_read = p_buffer + lane / 8 * kRows * 4;
    p_write = p_read + lane % 8 * C.p_row_bytes();
    fill(o, 0.0f);
  }

  ATTNFORGE_DEVICE static int row_of(int r) { return thread_index() % 32 / 8 + 4 * r; }
  ATTNFORGE_DEVICE static int key_of(int j) { return thread_index() % 8 + 8 * j; }
  ATTNFORGE_DEVICE float& output(int r, int i) { return o[r][i]; }
  ATTNFORGE_DEVICE void read_q(u32) {}

  /// s = Q K^T. Products of 32 elements are summed by themselves: one long sum would round at its
  /// full size after every one of them.
  ATTNFORGE_DEVICE void scores(Scores& s, u32 q_rows, u32 k_rows, bool /*precise*/) const {
    constexpr int kChunks = C.head_dim / 4, kChunksPerSum = 8;
    fill(s.s, 0.0f);
#pragma unroll 1
    for (int first = 0; first < kChunks; first += kChunksPerSum) {
      Scores part;
      fill(part.s, 0.0f);
      const int end = kChunks % kChunksPerSum == 0 ? first + kChunksPerSum
                                                   : min(first + kChunksPerSum, kChunks);
#pragma unroll 2
      for (int d = first; d < end; ++d) {
        float q[kRows][4];
        unrolled<kRows>(
            [&](int r) { load_shared(q[r], q_rows + q_lane + r * 4 * kQkRowBytes + d * 16); });
#pragma unroll
        for (int j = 0; j < Scores::kKeys; ++j) {
          float k[4];
          load_shared(k, k_rows + k_lane + j * 8 * kQkRowBytes + d * 16);
          unrolled<kRows, 4>(
              [&](int r, int c) { part.s[r][j] = fmaf(q[r][c], k[c], part.s[r][j]); });
        }
      }
      unrolled<kRows, Scores::kKeys>([&](int r, int j) { s.s[r][j] += part.s[r][j]; });
    }
  }

  /// o = o * rescale + P V.
  ATTNFORGE_DEVICE void outputs(const Scores& p, u32 v_rows, const float (&rescale)[kRows],
                                bool grew, bool /*precise*/) {
    if (grew) {
      unrolled<kRows, kColumns>([&](int r, int i) { o[r][i] *= rescale[r]; });
    }
    __syncwarp();  // all have read the probabilities of the step before
#pragma unroll
    for (int j = 0; j < Scores::kKeys; ++j)
#pragma unroll
      for (int r = 0; r < kRows; r += kWide) {
        float x[kWide];
        unrolled<kWide>([&](int i) { x[i] = p.s[r + i][j]; });
        store_shared(p_write + j * 8 * C.p_row_bytes() + r * 4, x);
      }
    __syncwarp();
#pragma unroll 4
    for (int n = 0; n < C.step_n; ++n) {
      float x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; r += kWide) {
        float some[kWide];
        load_shared(some, p_read + n * C.p_row_bytes() + r * 4);
        unrolled<kWide>([&](int i) { x[r + i] = some[i]; });
      }
#pragma unroll
      for (int i = 0; i < kColumns; i += 4) {
        // Some of the last chunks may lie after the row, where other rows and the probabilities
        // are: such columns are not stored.
        float v[4];
        load_shared(v, v_rows + v_lane + n * kVRowBytes + i * 32);
        unrolled<kRows, 4>([&](int r, int c) { o[r][i + c] = fmaf(x[r], v[c], o[r][i + c]); });
      }
    }
  }

  /// put(column of this warp, values) for all that this lane has of row r.
  template <class Put>
  ATTNFORGE_DEVICE void for_each_piece(int r, const Put& put) const {
#pragma unroll
    for (int i = 0; i < kColumns; i += 4) {
      const float x[4] = {o[r][i], o[r][i + 1], o[r][i + 2], o[r][i + 3]};
      const int column = i * 8 + thread_index() % 8 * 4;
      if (C.warp_columns() % 32 == 0 || column < C.warp_columns()) put(column, x);
    }
  }
};

}  // namespace attnforge
