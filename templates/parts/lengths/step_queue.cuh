// step_queue.cuh - the step before a kernel with Lengths: lists the query tiles of one head of all
// sequences, those with most keys first inside groups of sequences whose K and V fit L2 together.
#pragma once

#include "parts/lengths/params.h"
#include "ptx/grid_dependency.cuh"

namespace attnforge {

/// One block. Lengths and Walk are the pieces of the kernel that takes the tiles, which have
/// kBlockM rows (kPackGqa of them a query) and kBlockN keys. Counts tiles by group and work, and
/// then deals each its place. Which of two tiles of like work comes first differs from run to run;
/// outputs do not depend on it.
template <class Lengths, class Walk, int kBlockM, int kBlockN, int kPackGqa, int kNumThreads = 1024>
struct MakeTileQueue {
  static constexpr int kNumWarps = kNumThreads / 32;
  static constexpr int kWorkBins = 32, kGroups = 32, kBins = kWorkBins * kGroups;
  static constexpr int kPerThread = kBins / kNumThreads;  // bins
  static_assert(kPerThread * kNumThreads == kBins && kNumWarps <= 32,
                "the prefix sum takes as many bins a thread, and a warp a lane");

  /// Calls f(item, bin) for all tiles; a warp takes every kNumWarps-th sequence. Bins are in the
  /// order of the list.
  template <class Params, class Function>
  ATTNFORGE_DEVICE static void for_each_tile(const Params& params, const Function& f) {
    const FwdParams& p = params.fwd;
    const int most = ceil_div(p.seqlen_kv, kBlockN);  // key tiles that a query tile can have
    for (int sequence = int(threadIdx.x) / 32; sequence < p.batch; sequence += kNumWarps) {
      const Lengths lengths(params, sequence);
      const int rows = lengths.q() * kPackGqa, group = group_of(params, lengths, sequence);
      for (int m = int(threadIdx.x) % 32; m * kBlockM < rows; m += 32) {
        const int last_row = min((m + 1) * kBlockM, rows) - 1;
        const int count = Walk::count_of(params, lengths, kBlockN, sequence, m,
                                         m * kBlockM / kPackGqa, last_row / kPackGqa);
        const int work = most == 0 ? 0
                                   : min(i64(count) * (kWorkBins - 1) / most, i64(kWorkBins - 1));
        f(QueuedTile{sequence, m}, group * kWorkBins + kWorkBins - 1 - work);
      }
    }
  }

  /// The group of a sequence by where its keys begin, as if all sequences of a padded tensor were
  /// full.
  template <class Params>
  ATTNFORGE_DEVICE static int group_of(const Params& params, const Lengths& lengths, int sequence) {
    const int keys = params.lengths.keys_per_group;
    if (keys == 0) return 0;
    const i64 begin = lengths.kv_begin() + i64(lengths.batch()) * params.fwd.seqlen_kv;
    return int(min(begin / keys, i64(kGroups - 1)));
  }

  template <class Params>
  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ int bins[kBins];  // tiles in a bin, then where its next tile goes
    __shared__ int of_warps[kNumWarps];
    const int thread = int(threadIdx.x), lane = thread % 32, warp = thread / 32;
    start_next_grid();
    if constexpr (Walk::kListed) await_previous_grid();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) bins[thread * kPerThread + i] = 0;
    __syncthreads();
    for_each_tile(params, [&](const QueuedTile&, int bin) { atomicAdd(&bins[bin], 1); });
    __syncthreads();

    // Where each bin begins: sums over lanes, then over warps.
    int own = 0;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) own += bins[thread * kPerThread + i];
    const int through = sum_of_lanes_before(own, lane) + own;
    if (lane == 31) of_warps[warp] = through;
    __syncthreads();
    const bool has_warp = kNumWarps == 32 || lane < kNumWarps;
    if (warp == 0) {
      const int tiles = has_warp ? of_warps[lane] : 0;
      const int before = sum_of_lanes_before(tiles, lane);
      if (has_warp) of_warps[lane] = before;
      // Arrays that say more than the problem does must not write after the list's end.
      if (lane == 31) params.lengths.work->tiles = min(before + tiles, params.lengths.most_tiles);
    }
    __syncthreads();
    int begin = of_warps[warp] + through - own;
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) {
      int& bin = bins[thread * kPerThread + i];
      const int tiles = i + 1 < kPerThread ? bin : 0;
      bin = begin;
      begin += tiles;
    }
    __syncthreads();

    QueuedTile* const list = reinterpret_cast<QueuedTile*>(params.lengths.work + 1);
    for_each_tile(params, [&](const QueuedTile& item, int bin) {
      const int at = atomicAdd(&bins[bin], 1);
      if (at < params.lengths.most_tiles) list[at] = item;
    });
  }

  ATTNFORGE_DEVICE static int sum_of_lanes_before(int x, int lane) {
    int sum = x;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const int before = __shfl_up_sync(~0u, sum, distance);
      if (lane >= distance) sum += before;
    }
    return sum - x;
  }
};

}  // namespace attnforge
