// step_rows.cuh - the step before a backward kernel: of each query row its lse in base 2 and delta,
// the sum over columns of dout * o, - dlse; and zeros where gradients are added up or counted.
#pragma once

#include "backward/params.h"
#include "backward/scratch.cuh"
#include "ptx/grid_dependency.cuh"
#include "shape.h"
#include "tile/elements.cuh"

namespace attnforge {

/// C is the config of the kernel after it, whose query tiles have kBlockM rows, Lengths its piece.
/// All rows of the scratch are written. kBlockN: the keys of a tile where the kernel wants a list
/// of packed key tiles (ListedKeyTile), else 0.
template <auto C, class Lengths, int kBlockM, int kBlockN = 0>
struct BwdRows {
  static constexpr int kThreads = 256;
  // A row has so many neighbouring lanes of a warp, each with a vector of 8 columns.
  static constexpr int kVectors = ceil_div(C.head_dim_v, 8);
  static constexpr int kLanes = kVectors > 16 ? 32 : next_power_of_two(kVectors);
  static_assert(kVectors <= kLanes);
  // Rows of a thread, with all their loads in flight at once.
  static constexpr int kSteps = 4, kRowsApart = kThreads / kLanes;
  static constexpr int kRows = kSteps * kRowsApart;  // of a block
  static constexpr float kLog2e = 1.44269504088896340736f;

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    await_previous_grid();
    start_next_grid();
    set_zeros(params);
    if constexpr (kBlockN != 0)
      if (blockIdx.x == 0) list_key_tiles(params);

    const FwdParams& p = params.fwd;
    const BwdScratch& scratch = params.scratch;
    const int blocks_of_head = ceil_div(scratch.rows_padded, kRows);
    int of_all_heads, block_of_head;
    // Heads of packed rows are neighbours in memory. Where sequences are apart, the kernel after
    // this one loses what this one gains.
    if constexpr (is_packed<Lengths>()) {
      const int all_heads = quotient(gridDim.x, blocks_of_head);
      block_of_head = quotient(blockIdx.x, all_heads);
      of_all_heads = int(blockIdx.x) - block_of_head * all_heads;
    } else {
      of_all_heads = quotient(blockIdx.x, blocks_of_head);
      block_of_head = int(blockIdx.x) - of_all_heads * blocks_of_head;
    }
    const int first_row = block_of_head * kRows + int(threadIdx.x) / kLanes;
    const int stored = quotient(of_all_heads, p.num_heads_q);
    const int head = of_all_heads - stored * p.num_heads_q;
    const int lane = int(threadIdx.x) % kLanes;

    Row rows[kSteps];
    float delta[kSteps];
    SequenceTile tile{stored, 0};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int row = first_row + s * kRowsApart, number = row / kBlockM;
      tile = s == 0 ? scratch_tile<Lengths>(params, stored, kBlockM, number)
                    : later_scratch_tile<Lengths>(params, tile.sequence, kBlockM, number);
      rows[s] = row_at(params, tile, row % kBlockM);
    }
    products(params, head, lane, rows, delta);
#pragma unroll
    for (int s = 0; s < kSteps; ++s)
#pragma unroll
      for (int distance = kLanes / 2; distance > 0; distance /= 2)
        delta[s] += __shfl_xor_sync(0xffffffffu, delta[s], distance);

        // Each lane writes other rows.
#pragma unroll
    for (int first = 0; first < kSteps; first += kLanes) {
      float own = delta[first];
      Row row = rows[first];
#pragma unroll
      for (int l = 1; l < min(kLanes, kSteps - first); ++l)
        if (lane == l) own = delta[first + l], row = rows[first + l];
      const int row_of_head = first_row + (first + lane) * kRowsApart;
      if (lane < kSteps - first && row_of_head < scratch.rows_padded)
        write(params, head, row, own, i64(of_all_heads) * scratch.rows_padded + row_of_head);
    }
  }

 private:
  /// A row of a tensor of queries.
  struct Row {
    i64 batch, at;
    bool present;  // else it is no row of a sequence
  };

  template <class Params>
  ATTNFORGE_DEVICE static Row row_at(const Params& params, const SequenceTile& tile, int of_tile) {
    const Lengths lengths(params, tile.sequence);
    const int row = tile.tile * kBlockM + of_tile;
    return {lengths.batch(), lengths.q_begin() + row, row < lengths.q()};
  }

  /// A lane's part of the sums over columns of dout * o. The loads of all rows are in flight at
  /// once: nothing between them takes what one brings.
  template <class Params>
  ATTNFORGE_DEVICE static void products(const Params& params, int head, int lane,
                                        const Row (&rows)[kSteps], float (&sums)[kSteps]) {
    constexpr int kBytes = element_bytes(C.dtype_o), kWords = 8 * kBytes / 4;
    u32 o[kSteps][kWords] = {}, dout[kSteps][kWords] = {};
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const auto load = [&](const TensorRef& tensor, u32(&words)[kWords]) {
        load_words<C.alignment>(head_pointer<C.dtype_o>(tensor, rows[s].batch, head) +
                                    (rows[s].at * tensor.stride_row + lane * 8) * kBytes,
                                words);
      };
      if (!rows[s].present || lane >= kVectors) continue;
      load(params.fwd.o, o[s]);
      load(params.dout, dout[s]);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      float a[8], b[8];
      to_floats<C.dtype_o>(o[s], a);
      to_floats<C.dtype_o>(dout[s], b);
      sums[s] = 0.0f;
#pragma unroll
      for (int i = 0; i < 8; ++i) sums[s] += a[i] * b[i];
    }
  }

  /// Writes what a row has in the scratch, where its number is `to`.
  template <class Params>
  ATTNFORGE_DEVICE static void write(const Params& params, int head, const Row& row, float delta,
                                     i64 to) {
    const FwdParams& p = params.fwd;
    float lse = __int_as_float(0xff800000);  // -inf
    if (row.present) {
      lse = p.lse[row.batch * p.lse_stride_batch + head * p.lse_stride_head + row.at];
      if (params.dlse != nullptr)
        delta -= params.dlse[row.batch * params.dlse_stride_batch + head * params.dlse_stride_head +
                             row.at];
    }
    const bool sees_nothing = lse == __int_as_float(0xff800000);
    params.scratch.lse_log2[to] = sees_nothing ? -lse : lse * kLog2e;
    // Whatever o and dout hold there, p is 0.
    params.scratch.delta[to] = sees_nothing ? 0.0f : delta;
  }

  /// By one block: a thread has a sequence, and adds up the tiles of all before it. Arrays that say
  /// more than the problem does, or less than nothing, must not write outside of the list: others
  /// wait for as many tiles as it says, of which the grid has no more than fit.
  template <class Params>
  ATTNFORGE_DEVICE static void list_key_tiles(const Params& params) {
    __shared__ int of_warps[kThreads / 32];
    auto* const list = key_tile_list<Lengths>(params) + 1;
    const int batch = params.fwd.batch, lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int most = params.lengths.most_tiles;
    int before = 0;
#pragma unroll 1
    for (int from = 0; from < batch; from += kThreads) {
      const int sequence = from + int(threadIdx.x);
      const Lengths lengths(params, min(sequence, batch - 1));
      const unsigned keys = sequence < batch ? max(lengths.kv(), 0) : 0;
      const int own = min(int((keys + kBlockN - 1) / kBlockN), most);
      int sum = own;  // with those of the lanes before, then with those of the warps before
#pragma unroll
      for (int apart = 1; apart < 32; apart *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, apart);
        if (lane >= apart) sum += other;
      }
      if (lane == 31) of_warps[warp] = sum;
      __syncthreads();
      int all = 0;
#pragma unroll
      for (int w = 0; w < kThreads / 32; ++w) {
        if (w < warp) sum += of_warps[w];
        all += of_warps[w];
      }
      const int first = before + sum - own;
#pragma unroll 1
      for (int tile = 0; tile < min(own, most - first); ++tile)
        list[first + tile] = {sequence, tile, lengths};
      before = min(before + all, most);
      __syncthreads();
    }
    if (threadIdx.x != 0) return;
    if (before == 0) list[0] = {0, 0, Lengths(params, 0)};
    *listed_key_tiles<Lengths>(params) = max(before, 1);
  }

  template <class Params>
  ATTNFORGE_DEVICE static void set_zeros(const Params& params) {
    float4* const to = static_cast<float4*>(params.zeros_begin);
    const u64 stride = u64(gridDim.x) * kThreads;
    for (u64 i = u64(blockIdx.x) * kThreads + threadIdx.x; i < params.zeros; i += stride)
      to[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  }
};

}  // namespace attnforge
