// cluster_output.cuh - Output of a kernel whose query tiles have several blocks, each with a split
// of the keys, in one cluster: each block merges a share of the rows in its shared memory.
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "params_partials.h"
#include "params_split_merge.h"
#include "pieces/split_walk.cuh"
#include "ptx/cluster.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/merge_by_warp.cuh"
#include "tile/valueless_score.cuh"

namespace attnforge {

/// As many splits as the grid's second dimension has blocks, whatever is left for a step to merge.
struct ClusterSplits : EvenSplits {
  template <class Params>
  ATTNFORGE_DEVICE static int count(const Params&) {
    return grid_blocks_y();
  }
};

/// C is the kernel's config; Argument its argument, up to the ClusterMergeParams. A split's rows
/// are written straight to the blocks that merge them, behind their tiles: who has started is known
/// by then, and nobody reads memory of a block that may have ended. Sums are in the order of
/// MergeRow. kThenStep: a tile has several clusters, whose results are parts of rows again.
template <auto C, class Argument, bool kThenStep>
struct ClusterOutput {
  static constexpr bool kMerges = true;
  using Share = ClusterShare<C.head_dim_v>;

  /// This block's parts: of o, [blocks, share] quads of columns, and of lse, [rows, blocks].
  struct Memory {
    int share_log2, blocks;
    ATTNFORGE_DEVICE int o(int part, int slot) const {
      return C.smem_bytes() + ((part << share_log2) + slot) * 16;
    }
    ATTNFORGE_DEVICE int lse(int row, int part) const {
      return o(blocks, 0) + (row * blocks + part) * 4;
    }
    /// What the sums of a row are to be multiplied with.
    ATTNFORGE_DEVICE int inverse(int row) const {
      return lse(Share::rows(share_log2), 0) + row * 4;
    }
  };

  ATTNFORGE_DEVICE static void begin() { cluster_arrive(); }
  ATTNFORGE_DEVICE static void await_room() { cluster_wait(); }
  template <class Params>
  ATTNFORGE_DEVICE static void leave(const Params&) {
    cluster_wait();
  }

  /// As that of RowsOutput, to the blocks that merge the row.
  template <int kHalf, int kStored, class QueryTile, int kComputed>
  ATTNFORGE_DEVICE static void store(const QueryTile& tile, int row, int first_column,
                                     const float (&o)[kComputed][4], float inverse, float lse) {
    extern __shared__ __align__(128) u8 shared_memory[];
    if (tile.query_of(row) >= tile.lengths.q()) return;
    const Argument& params = reinterpret_cast<const Argument&>(tile.p);
    const int quad_lane = thread_index() % 4, part = cluster_rank();
    const Memory memory{params.share_log2, cluster_blocks()};
    const int share_log2 = params.share_log2, mask = (1 << share_log2) - 1;
    const int first_unit = (row - tile.first_row) * Share::kPitch;
    const u32 smem = smem_address(shared_memory);
    if (quad_lane == 0 && first_column == 0) {
      const u32 to = smem + memory.lse((first_unit & mask) / Share::kPitch, part);
#pragma unroll 1
      for (int unit = first_unit; unit < first_unit + Share::kQuads; unit += mask + 1)
        store_in_cluster(in_block(to, unit >> share_log2), lse);
    }
    if (lse == negative_infinity()) return;
#pragma unroll
    for (int j = 0; j < kStored; ++j) {
      const int unit = first_unit + first_column / 4 + 2 * j + quad_lane / 2;
      const u32 to = smem + memory.o(part, unit & mask) + quad_lane % 2 * 8;
      store_in_cluster(in_block(to, unit >> share_log2), o[j][2 * kHalf] * inverse,
                       o[j][2 * kHalf + 1] * inverse);
    }
  }

  /// Called by all threads of the block when their rows are stored.
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void merge(const Params& params, const QueryTile& tile) {
    extern __shared__ __align__(128) u8 shared_memory[];
    const int share_log2 = params.share_log2, rank = cluster_rank();
    const Memory memory{share_log2, cluster_blocks()};
    const int first_unit = rank << share_log2, first_row = first_unit / Share::kPitch;
    const int rows = min(C.block_m, tile.end_row() - tile.first_row);
    cluster_sync();
    if (first_row >= rows) return;
    const int rows_here = min(Share::rows(share_log2), rows - first_row);
    const auto floats = [](int at) { return reinterpret_cast<float*>(shared_memory + at); };

    // 1. The weights of parts, a row by a warp; they take the place of lse.
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int row = warp; row < rows_here; row += C.num_threads() / 32) {
      const bool has_part = lane < memory.blocks;
      float* const weights = floats(memory.lse(row, 0));
      const float its_lse = has_part ? weights[lane] : negative_infinity();
      const float top = warp_max(its_lse), weight = weight_of_part(its_lse, top);
      const float total = warp_sum(weight);
      float lse = lse_of_parts(top, total);
      const int its_row = tile.first_row + first_row + row;
      const float factor = finish(params, tile, its_row, lse);
      if (has_part) weights[lane] = weight;
      if (lane != 0) continue;
      *floats(memory.inverse(row)) = total == 0.0f ? 0.0f : factor / total;
      if (first_unit % Share::kPitch == 0) store_lse(params, tile, its_row, lse);
    }
    __syncthreads();

    // 2. Sums of four columns, which a thread has.
    const int chains = MergeShape::of(memory.blocks).warps;
#pragma unroll 1
    for (int slot = int(threadIdx.x); slot < 1 << share_log2; slot += C.num_threads()) {
      const int unit = first_unit + slot, quad = unit % Share::kPitch;
      const int row = unit / Share::kPitch - first_row;
      if (quad >= Share::kQuads || row >= rows_here) continue;
      const float* const weights = floats(memory.lse(row, 0));
      float all[4] = {};
#pragma unroll 1
      for (int chain = 0; chain < chains; ++chain) {
        float sum[4] = {};
#pragma unroll 4
        for (int part = chain; part < memory.blocks; part += chains) {
          const float weight = weights[part];
          const float4 o = *reinterpret_cast<const float4*>(floats(memory.o(part, slot)));
          const float its[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
          for (int c = 0; c < 4; ++c) sum[c] = fmaf(weight, weight == 0.0f ? 0.0f : its[c], sum[c]);
        }
#pragma unroll
        for (int c = 0; c < 4; ++c) all[c] += sum[c];
      }
      const float inverse = *floats(memory.inverse(row));
#pragma unroll
      for (int c = 0; c < 4; ++c) all[c] *= inverse;
      store_o(params, tile, tile.first_row + first_row + row, quad * 4, all);
    }
  }

 private:
  /// Of a cluster's results, as splits have theirs.
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static i64 place(const Params& params, const QueryTile& tile, int row) {
    return EvenSplits::of_row(params, tile.lengths.batch(), tile.query_head_of(row),
                              tile.lengths.q_begin() + tile.query_of(row))
               .first +
           cluster_index_y();
  }

  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static float finish(const Params& params, const QueryTile& tile, int row,
                                       float& lse) {
    if constexpr (C.sinks != 0 && !kThenStep)
      return count_valueless(lse, __ldg(params.sinks.logits + tile.query_head_of(row)));
    return 1.0f;
  }
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void store_lse(const Params& params, const QueryTile& tile, int row,
                                         float lse) {
    if constexpr (kThenStep)
      params.partials.lse[place(params, tile, row)] = lse;
    else if constexpr (C.lse != 0)
      params.fwd.lse[tile.lse_offset_of(row)] = lse;
  }
  template <class Params, class QueryTile>
  ATTNFORGE_DEVICE static void store_o(const Params& params, const QueryTile& tile, int row,
                                       int column, const float (&x)[4]) {
    if constexpr (kThenStep) {
      *reinterpret_cast<float4*>(params.partials.o + place(params, tile, row) * C.head_dim_v +
                                 column) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
      const TensorRef& o = params.fwd.o;
      char* const to = static_cast<char*>(o.data) +
                       (tile.offset_of(o, row) + column) * element_bytes(C.dtype_o);
      store_4<C.dtype_o, C.alignment>(to, x[0], x[1], x[2], x[3]);
    }
  }
};

}  // namespace attnforge
