// tile_source.h - the query tiles of a problem, and what a kernel's source and launch have more
// when only the GPU knows how long sequences are: pieces that read the lengths, and a step before
// the kernel that lists the tiles where their order matters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/launch.h"
#include "templates/base_params.h"
#include "templates/host/argument.h"
#include "templates/host/kernel_source.h"
#include "templates/host/part.h"
#include "templates/host/tile_order.h"
#include "templates/parts/key_lists/host.h"
#include "templates/parts/lengths/params.h"

namespace attnforge {

/// What of a config decides how its blocks come by their query tiles.
struct QueryTiling {
  int block_m;
  int pack_gqa = 1;
  int blocks_per_sm = 1;
  bool splits = false;     // several blocks a tile, each with a part of the keys
  bool own_lists = false;  // of keys: each block makes its tile's, and no step orders the tiles
};

/// How blocks come by their query tiles. It is compiled in, and a cubin serves all problems of a
/// bucket: only what these share decides.
enum class TileSource {
  kSizes,    // computed from lengths that the host knows
  kBound,    // from the bound of lengths, where all tiles are under way at once: their order does
             // not matter, and those without rows end
  kList,     // from a list that a step before the kernel writes
  kLengths,  // splits of sequences with one tile a head, found by each block from all lengths
};
/// key_lists: a mask decides which keys each tile has.
TileSource tile_source(const Problem& problem, bool key_lists, const QueryTiling& tiling);

/// Of shared memory, at most, that blocks take for splits beside a config's own: which one a block
/// has, and of sequences whose lengths only the device knows the key tiles of each.
int split_smem_bytes(const Shape& shape);

/// Whether sequences of few rows may differ in length, so that splits that follow the lengths pay
/// where equal ones need none.
bool has_unequal_sequences(const Problem& problem);
/// The same of what a config's Shape and typical_problem() know.
bool has_unequal_sequences(const Shape& shape, const Problem& typical);

/// The tiles that a kernel takes, by number or from a list.
struct TileWork {
  TileOrder order;         // listed: of the heads of one sequence
  std::int64_t tiles = 0;  // of one head; listed: the most that there may be
  TileSource source = TileSource::kSizes;
  std::int64_t keys_per_group = 0;  // LengthsParams
  TileLists lists{};                // of the keys of each, after the list of tiles
  /// In the beginning of the workspace, by a step before the kernel.
  bool listed() const { return source == TileSource::kList; }
  /// Bytes of the list of tiles.
  std::size_t lists_begin() const;
  std::int64_t all_tiles() const { return tiles * order.heads; }
};

/// Tiles of block_m rows and key tiles of block_n (0: the kernel cannot gather its keys), with
/// pack_gqa heads in each. `shape`: the problem's. Heads are taken in groups whose K and V take
/// about head_group_mb MB, and in a list, where one head's take more, so are sequences; 0: head
/// after head. heavy_last: tile_order().
TileWork tile_work(const Problem& problem, const Shape& shape, const QueryTiling& tiling,
                   int block_n, int head_group_mb, bool heavy_last);

/// Query tiles of block_m rows that all sequences have for one head, or for pack_gqa heads in one
/// tile: the most that there may be.
std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa);

/// Arrays of lengths by each run, a list at the beginning of the workspace.
LengthsParams lengths_params(const TileWork& work);
void bind_lengths(LengthsParams& lengths, const Tensors& tensors, const RunMemory& memory);

/// `step` alone, or after the one that writes its list; then it may start before that is there
/// (ptx/grid_dependency.cuh). No step if there are no tiles.
Launch launch_of_work(const Problem& problem, const TileWork& work, const Arch& arch,
                      LaunchStep step);

/// The launch of a kernel whose argument is a Params, `fwd` and `order`: a block for each tile that
/// there may be.
template <class Params>
Launch launch_of_tiles(const Problem& problem, const TileWork& work, const Arch& arch,
                       LaunchStep step) {
  fill_argument<Params>(step, problem, work,
                        [&](Argument& argument) { argument.fwd(problem).value(work.order); });
  step.grid.x = static_cast<unsigned>(work.all_tiles());
  return launch_of_work(problem, work, arch, std::move(step));
}

/// `names` of a kernel that takes its tiles from `source`: with its order and, where that is a
/// list, the kernel of the step before. `block_m` and `block_n` are how the config names them.
KernelNames with_tile_source(KernelNames names, const Problem& problem, const Shape& shape,
                             TileSource source, std::string_view block_m, std::string_view block_n);

/// The same of one whose argument is a Params, with the problem's other parts.
template <class Params>
KernelNames with_tile_source(KernelNames names, const Problem& problem, const Shape& shape,
                             TileSource source, std::string_view block_m,
                             std::string_view block_n) {
  return with_tile_source(with_parts<Params>(std::move(names), problem), problem, shape, source,
                          block_m, block_n);
}

}  // namespace attnforge
