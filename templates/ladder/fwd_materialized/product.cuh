// product.cuh - a tile of a matrix product A B, whose slices of the depth pass through shared
// memory: by mma.sync, or in fp32 on CUDA cores.
#pragma once

#include "ladder/fwd_materialized/config.h"
#include "ptx/cp_async.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/swizzle.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// A matrix in global memory as a product reads it: from its first element, so many rows and
/// chunks of 8 elements are there, and the rest counts as zeros.
struct MatrixSource {
  const char* from;
  i64 pitch_bytes;
  int rows;
  int chunks;
};

/// block_m x kColumns elements of A B, over the depth in slices. A is [rows][depth]; B is
/// [columns][depth] (kDepthIsRow false: Q K^T) or [depth][columns] (true: P V).
///   run<kACopyBytes>(shared_memory, a, b, slices): the product; kACopyBytes is the alignment of A
///   for_each_pair(visit): visit(row, column, x, y) with the elements in columns column, column + 1
template <FwdMaterializedConfig C, int kColumns, bool kDepthIsRow,
          bool kTensorCores = C.tensor_cores()>
struct Product;

/// kRows x kChunks chunks of 16 bytes. kCopyBytes is what the matrix's alignment allows.
template <int kRows, int kChunks, int kThreads, int kCopyBytes>
struct SliceLoader {
  using Layout = SwizzledRows<kChunks>;

  /// `from` is the slice's first element; rows are pitch_bytes apart. Of the slice's rows and
  /// chunks the first rows_present and chunks_present are read.
  ATTNFORGE_DEVICE static void load(u32 tile, const char* from, i64 pitch_bytes, int rows_present,
                                    int chunks_present, int thread) {
#pragma unroll 4  // all of them would take the registers that large accumulators leave
    for (int first = 0; first < kRows * kChunks; first += kThreads) {
      const int i = first + thread;
      if (kRows * kChunks % kThreads != 0 && i >= kRows * kChunks) break;
      const int row = i / kChunks, chunk = i % kChunks;
      const bool present = row < rows_present && chunk < chunks_present;
      const char* source = from + (present ? row * pitch_bytes + chunk * 16 : 0);
#pragma unroll
      for (int b = 0; b < 16; b += kCopyBytes) {
        cp_async_or_zero<kCopyBytes>(tile + Layout::offset(row, chunk) + b, source + b, present);
      }
    }
  }
};

template <FwdMaterializedConfig C, int kColumns, bool kDepthIsRow>
struct Product<C, kColumns, kDepthIsRow, false> {
  static constexpr int kThreads = C.num_threads(), kDepth = C.slice();
  // Threads lie 16 to a row. A thread's rows lie next to each other, its columns in pairs 32 apart.
  static constexpr int kRows = C.block_m / (kThreads / 16), kPairs = kColumns / 32;

  struct SharedMemory {
    float a[kDepth][C.block_m];
    float b[kDepth][kColumns];
  };

  float c[kRows][kPairs][2];

  /// kCount lines of a matrix from element `first` of the depth on, transposed if the depth lies
  /// along its rows; zeros outside.
  template <bool kTransposed, int kCount>
  ATTNFORGE_DEVICE static void load(float (&tile)[kDepth][kCount], const MatrixSource& source,
                                    int first) {
    for (int i = threadIdx.x; i < kDepth * kCount; i += kThreads) {
      const int line = kTransposed ? i / kDepth : i % kCount;
      const int d = kTransposed ? i % kDepth : i / kCount;
      const int row = kTransposed ? line : first + d, column = kTransposed ? first + d : line;
      const bool present = row < source.rows && column < source.chunks * 8;
      tile[d][line] = present ? *reinterpret_cast<const float*>(
                                    source.from + row * source.pitch_bytes + column * 4)
                              : 0.0f;
    }
  }

  ATTNFORGE_DEVICE static int first_row() { return int(threadIdx.x) / 16 * kRows; }
  ATTNFORGE_DEVICE static int first_column() { return int(threadIdx.x) % 16 * 2; }

  template <int kACopyBytes>
  ATTNFORGE_DEVICE void run(u8* shared_memory, const MatrixSource& a, const MatrixSource& b,
                            int slices) {
    SharedMemory& smem = *reinterpret_cast<SharedMemory*>(shared_memory);
    fill(c, 0.0f);
    for (int n = 0; n < slices; ++n) {
      __syncthreads();  // all warps are done with the slice before
      load<true>(smem.a, a, n * kDepth);
      load<!kDepthIsRow>(smem.b, b, n * kDepth);
      __syncthreads();
#pragma unroll 4
      for (int d = 0; d < kDepth; ++d) {
        float from_a[kRows];
        unrolled<kRows>([&](int i) { from_a[i] = smem.a[d][first_row() + i]; });
#pragma unroll
        for (int j = 0; j < kPairs; ++j) {
          const float2 from_b = *reinterpret_cast<const float2*>(
              &smem.b[d][first_column() + j * 32]);
#pragma unroll
          for (int i = 0; i < kRows; ++i) {
            c[i][j][0] = fmaf(from_a[i], from_b.x, c[i][j][0]);
            c[i][j][1] = fmaf(from_a[i], from_b.y, c[i][j][1]);
          }
        }
      }
    }
  }

  template <class Visit>
  ATTNFORGE_DEVICE void for_each_pair(const Visit& visit) const {
    unrolled<kRows, kPairs>([&](int i, int j) {
      visit(first_row() + i, first_column() + j * 32, c[i][j][0], c[i][j][1]);
    });
  }
};

/// Warps share the rows out.
template <FwdMaterializedConfig C, int kColumns, bool kDepthIsRow>
struct Product<C, kColumns, kDepthIsRow, true> {
  static constexpr int kThreads = C.num_threads(), kDepth = C.slice(), kDepthChunks = kDepth / 8;
  static constexpr int kRowFragments = C.block_m / C.num_warps / 16;
  static constexpr int kFragments = kColumns / 8;
  static constexpr int kBRows = kDepthIsRow ? kDepth : kColumns;
  static constexpr int kBChunks = kDepthIsRow ? kColumns / 8 : kDepthChunks;
  static constexpr int kABytes = C.block_m * kDepth * 2;
  static constexpr int kStageBytes = C.slice_bytes(kColumns);
  using ARows = SwizzledRows<kDepthChunks>;
  using BRows = SwizzledRows<kBChunks>;
  template <int kCopyBytes>
  using ALoader = SliceLoader<C.block_m, kDepthChunks, kThreads, kCopyBytes>;
  using BLoader = SliceLoader<kBRows, kBChunks, kThreads, C.alignment>;

  float c[kRowFragments][kFragments][4];

  ATTNFORGE_DEVICE static int lane() { return int(threadIdx.x) % 32; }
  /// First row of this warp in the tile.
  ATTNFORGE_DEVICE static int warp_row() { return int(threadIdx.x) / 32 * kRowFragments * 16; }

  /// Slice n of A and B to `stage`; a group of cp.async even when there is no such slice.
  template <int kACopyBytes>
  ATTNFORGE_DEVICE static void load(u32 stage, const MatrixSource& a, const MatrixSource& b, int n,
                                    int slices) {
    if (n < slices) {
      ALoader<kACopyBytes>::load(stage, a.from + n * kDepth * 2, a.pitch_bytes, a.rows,
                                 a.chunks - n * kDepthChunks, threadIdx.x);
      if constexpr (kDepthIsRow) {
        BLoader::load(stage + kABytes, b.from + n * kDepth * b.pitch_bytes, b.pitch_bytes,
                      b.rows - n * kDepth, b.chunks, threadIdx.x);
      } else {
        BLoader::load(stage + kABytes, b.from + n * kDepth * 2, b.pitch_bytes, b.rows,
                      b.chunks - n * kDepthChunks, threadIdx.x);
      }
    }
    cp_async_commit();
  }

  /// c += a slice of A times a slice of B.
  ATTNFORGE_DEVICE void multiply(u32 a_tile, u32 b_tile) {
    const typename ARows::Fragment a_fragment(warp_row() + lane() % 16, lane() / 16);
    const typename BRows::Fragment b_fragment(
        kDepthIsRow ? lane() % 16 : lane() % 8 + lane() / 16 * 8,
        kDepthIsRow ? lane() / 16 : lane() / 8 % 2);
#pragma unroll
    for (int d = 0; d < kDepthChunks; d += 2) {
      u32 a[kRowFragments][4];
      unrolled<kRowFragments>(
          [&](int f) { ldmatrix_x4(a[f], a_fragment.at(a_tile + f * 16 * ARows::kRowBytes, d)); });
#pragma unroll
      for (int j = 0; j < kFragments; j += 2) {
        u32 b[4];
        if constexpr (kDepthIsRow) {
          ldmatrix_x4_trans(b, b_fragment.at(b_tile + d * 8 * BRows::kRowBytes, j));
        } else {
          ldmatrix_x4(b, b_fragment.at(b_tile + j * 8 * BRows::kRowBytes, d));
        }
#pragma unroll
        for (int f = 0; f < kRowFragments; ++f) {
          mma_m16n8k16<C.dtype>(c[f][j], a[f], b[0], b[1]);
          mma_m16n8k16<C.dtype>(c[f][j + 1], a[f], b[2], b[3]);
        }
      }
    }
  }

  template <int kACopyBytes>
  ATTNFORGE_DEVICE void run(const u8* shared_memory, const MatrixSource& a, const MatrixSource& b,
                            int slices) {
    const u32 smem = smem_address(shared_memory);
    fill(c, 0.0f);
    unrolled<C.stages - 1>(
        [&](int n) { load<kACopyBytes>(smem + n * kStageBytes, a, b, n, slices); });
    u32 stage = 0;
    for (int n = 0; n < slices; ++n) {
      if constexpr (C.stages == 1) load<kACopyBytes>(smem, a, b, n, slices);
      // The barrier also says that all warps are done with the slice before, whose memory is next.
      cp_async_wait<C.stages == 1 ? 0 : C.stages - 2>();
      __syncthreads();
      if constexpr (C.stages > 1) {
        const u32 free = (stage == 0 ? C.stages : stage) - 1;
        load<kACopyBytes>(smem + free * kStageBytes, a, b, n + C.stages - 1, slices);
      }
      multiply(smem + stage * kStageBytes, smem + stage * kStageBytes + kABytes);
      if constexpr (C.stages == 1) __syncthreads();
      stage = stage == C.stages - 1 ? 0 : stage + 1;
    }
    cp_async_wait<0>();
  }

  template <class Visit>
  ATTNFORGE_DEVICE void for_each_pair(const Visit& visit) const {
    unrolled<kRowFragments, 2, kFragments>([&](int f, int half, int j) {
      visit(warp_row() + f * 16 + half * 8 + MmaFragment::row(lane()),
            j * 8 + MmaFragment::column(lane()), c[f][j][2 * half], c[f][j][2 * half + 1]);
    });
  }
};

}  // namespace attnforge
