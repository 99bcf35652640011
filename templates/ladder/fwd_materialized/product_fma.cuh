// product_fma.cuh - a tile of A B in fp32 on CUDA cores: every thread has a small block of the
// result, and slices of A and B pass through shared memory one element at a time.
#pragma once

#include "base.cuh"
#include "ladder/fwd_materialized/config.h"
#include "ladder/fwd_materialized/product.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

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

}  // namespace attnforge
