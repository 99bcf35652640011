// tile_order.h - in which order the blocks of a grid take query tiles (tile/tile_order.cuh), and
// what the order leaves idle.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "templates/base_params.h"

namespace attnforge {

/// Bytes of K and V of a key, of one K/V head.
std::int64_t key_bytes(const Problem& problem);

/// The order for query tiles of block_m rows, with pack_gqa heads in each. Heads are taken in
/// groups whose K and V fit head_group_mb MB; 0: one head at a time. heavy_last: the last tile of a
/// head has the most work.
TileOrder tile_order(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                     bool heavy_last);

/// The order for kernels on CUDA cores, which do not search it. They are slow enough for L2 to
/// matter little; under a causal mask what counts is that all blocks end together.
TileOrder cuda_core_order(const Problem& problem, int block_m, bool heavy_last);

/// Values of head_group_mb worth a try: half of the L2, and head after head. Under a causal mask,
/// whose heavy tiles should all start early, rather all heads at once; of a tile queue
/// first of all, and sorted by length its tiles share the L2 as they are.
std::vector<int> head_groups_mb(const Problem& problem, const DeviceFacts& device);

/// How much longer `blocks` equal blocks take than work that spreads over all places evenly: the
/// last round leaves some of them empty. 1 or more.
double idle_factor(double blocks, double places);

/// idle_factor() for the blocks of an order. Under a causal mask the light tiles at the end fill
/// the last round, unless the last group is small: its heavy tiles start late.
double idle_factor(const TileOrder& order, double places);

}  // namespace attnforge
