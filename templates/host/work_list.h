// work_list.h - the query tiles of a problem, and what a kernel's source and launch have more when
// only the GPU knows how long sequences are: pieces that read the lengths, and a step before the
// kernel that lists the tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/launch.h"
#include "templates/host/argument.h"
#include "templates/host/kernel_source.h"
#include "templates/host/tile_order.h"
#include "templates/params_fwd.h"
#include "templates/params_lengths.h"

namespace attnforge {

/// The tiles that a kernel takes, by number or from a list.
struct TileWork {
  TileOrder order;         // listed: of the heads of one sequence
  std::int64_t tiles = 0;  // of one head; listed: the most that there may be
  bool listed = false;     // in the beginning of the workspace, by a step before the kernel
  std::int64_t keys_per_group = 0;  // LengthsParams
  std::int64_t all_tiles() const { return tiles * order.heads; }
};

/// Tiles of block_m rows, with pack_gqa heads in each. Heads are taken in groups whose K and V take
/// about head_group_mb MB, and in a list, where one head's take more, so are sequences; 0: head
/// after head. heavy_last: tile_order().
TileWork tile_work(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                   bool heavy_last);

KernelNames with_pieces(KernelNames names, const Shape& shape, std::size_t params_bytes,
                        std::size_t bytes_with_lengths);
KernelNames with_work_list(KernelNames names, const Shape& shape, std::string_view block_m,
                           std::string_view block_n);

/// Query tiles of block_m rows that all sequences have for one head, or for pack_gqa heads in one
/// tile: the most that there may be.
std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa);

/// Arrays of lengths by each run, a list at the beginning of the workspace.
LengthsParams lengths_params(const TileWork& work);

/// Fills the argument of `step`, whose kernel takes a Params: fill(Argument&) adds what that has,
/// and what the problem's lengths need comes after it.
template <class Params, class Fill>
void fill_argument(LaunchStep& step, const Problem& problem, const TileWork& work,
                   const Fill& fill) {
  if (problem.lengths == Lengths::kFixed) {
    Argument argument = Argument::of<Params>(step);
    fill(argument);
    return argument.done();
  }
  Argument argument = Argument::of<WithLengths<Params>>(step);
  fill(argument);
  argument.template end_of_base<Params>().part(lengths_params(work), LengthsArgument{}).done();
}

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

/// `names` of a kernel whose argument is a Params, with the pieces that read the shape's lengths.
template <class Params>
KernelNames with_pieces(KernelNames names, const Shape& shape) {
  return with_pieces(std::move(names), shape, sizeof(Params), sizeof(WithLengths<Params>));
}
/// The same for one that takes its tiles in the order of a TileWork: also the order of a list, and
/// the kernel of the step before. `block_m` and `block_n` are how the config names them.
template <class Params>
KernelNames with_work_list(KernelNames names, const Shape& shape, std::string_view block_m,
                           std::string_view block_n) {
  return with_work_list(with_pieces<Params>(std::move(names), shape), shape, block_m, block_n);
}

}  // namespace attnforge
