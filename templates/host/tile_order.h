// tile_order.h - the query tiles of a problem: in which order blocks take them, what that leaves
// idle, and how blocks come by them where only the GPU knows how long sequences are.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/shape.h"
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

/// How many more rows the rounds of equal tiles have for each query, over the lengths and batches
/// of a bucket on the average, than for its own: what a length just above a multiple of block_m, or
/// a last round with few tiles, leaves empty. Of buckets above 128 queries; else 1.
double spread_of_rows(const Problem& problem, int block_m, int pack_gqa, double places);

/// What of a config decides how its blocks come by their query tiles.
struct QueryTiling {
  int block_m = 0;
  int block_n = 0;
  int pack_gqa = 1;
  int blocks_per_sm = 1;
  int num_splits = 1;   // more: several blocks a tile, each with a part of the keys
  bool shares = false;  // persistent blocks have equal shares of all key tiles
  // Most groups of keys in a list that the tile's block makes itself, and no step orders the
  // tiles. 0: a step makes all lists.
  int own_list_groups = 0;
  // What a block takes, where an SM may hold more of them than asked for. 0 threads: it does not.
  int threads = 0, registers = 0, smem_bytes = 0;
};

/// Blocks that an SM holds at once; where `tiling` does not say what they take, as many as the
/// config asks for.
int blocks_of_sm(const QueryTiling& tiling, const Arch& arch);

/// How blocks come by their query tiles. It is compiled in, and a cubin serves all problems of a
/// bucket: only what these share decides.
enum class TileSource {
  kSizes,    // computed from lengths that the host knows
  kBound,    // from the bound of lengths, where all tiles are under way at once: their order does
             // not matter, and those without rows end
  kList,     // from a list that a step before the kernel writes
  kLengths,  // splits of sequences with one tile a head, found by each block from all lengths
  kShares,   // the same, of a persistent block several slices
};
/// key_lists: a mask decides which keys each tile has.
TileSource tile_source(const Problem& problem, bool key_lists, const QueryTiling& tiling);
/// The same of a typical_problem(), which has none of the lengths that the kernel's shape has.
TileSource tile_source(const Shape& shape, const Problem& typical, const QueryTiling& tiling);

/// The tiles that a kernel takes, by number or from a list.
struct TileSchedule {
  TileOrder order{};       // listed: of the heads of one sequence
  std::int64_t tiles = 0;  // of one head; listed: the most that there may be
  TileSource source = TileSource::kSizes;
  std::int64_t keys_per_group = 0;  // of a list: of sequences that are taken together; 0: all
  /// In the workspace, by a step before the kernel.
  bool listed() const { return source == TileSource::kList; }
  std::int64_t all_tiles() const { return tiles * order.heads; }
};

/// `source`: that of the problem and the tiling. Heads are taken in groups whose K and V take about
/// head_group_mb MB; 0: head after head. In a queue, where those of one head take more, so are
/// sequences. heavy_last: tile_order().
TileSchedule tile_schedule(const Problem& problem, TileSource source, const QueryTiling& tiling,
                           int head_group_mb, bool heavy_last);

/// Query tiles of block_m rows that all sequences have for one head, or for pack_gqa heads in one
/// tile: the most that there may be.
std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa);

}  // namespace attnforge
