// load_key_scales.cuh - a job beside tiles of K whose rows have scales: these come after the tile
// in shared memory.
#pragma once

#include "hopper/workers.cuh"
#include "low_bits.h"
#include "ptx/shared_memory.cuh"
#include "ptx/special_registers.cuh"

namespace attnforge {

/// Keys after a sequence's last have 0. The argument has a ScaleParams `scales`, with pages a
/// PagesParams `pages`.
template <auto C, class JobTile>
struct LoadKeyScales {
  static_assert(C.kv_scale == kScaleToken);
  static constexpr int kThreads = 96;  // of three warps
  static constexpr int kOfThread = ceil_div(C.block_n, kThreads);

  const JobTile keys;
  const int warp;

  ATTNFORGE_DEVICE LoadKeyScales(const JobTile& of_keys, int number, int)
      : keys(of_keys), warp(number) {}

  /// Loads are under way together.
  ATTNFORGE_DEVICE void run(u32, u32 tile) const {
    const auto& queries = keys.queries;
    const TensorRef& from = queries.params.scales.k;
    const float* const of_head = static_cast<const float*>(from.data) +
                                 queries.kv_head() * from.stride_head;
    const int first = warp * 32 + thread_index() % 32;
    float scales[kOfThread];
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int row = first + i * kThreads, key = keys.key(row);
      scales[i] = row < C.block_n && key < queries.lengths.kv()
                      ? of_head[offset_of(queries, from, key)]
                      : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kOfThread; ++i) {
      const int row = first + i * kThreads;
      if (row < C.block_n)
        store_shared(tile + C.k_bytes() + place_of(row) * 4, __float_as_int(scales[i]));
    }
  }

 private:
  /// Of 16 keys, those of a lane in two fragments of scores lie together.
  ATTNFORGE_DEVICE static int place_of(int row) {
    return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
  }
  template <class QueryTile>
  ATTNFORGE_DEVICE static i64 offset_of(const QueryTile& queries, const TensorRef& scales,
                                        int key) {
    if constexpr (C.page_size != 0) {
      const auto& pages = queries.params.pages;
      const u32 page = pages.table[queries.batch * pages.stride_batch + u32(key) / C.page_size];
      return min(page, u32(pages.num_pages) - 1) * scales.stride_batch +
             u32(key) % C.page_size * scales.stride_row;
    } else {
      return queries.lengths.batch() * scales.stride_batch +
             (queries.lengths.kv_begin() + key) * scales.stride_row;
    }
  }
};

}  // namespace attnforge
