// lengths.h - what a family adds to its source and launch when only the GPU knows how long
// sequences are: pieces that read the lengths, and a step before the kernel that lists the query
// tiles.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/launch.h"
#include "templates/host/argument.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/tile_order.h"
#include "templates/params_fwd.h"
#include "templates/params_lengths.h"

namespace attnforge {

/// Query tiles of block_m rows that all sequences have for one head, or for pack_gqa heads in one
/// tile: the most that there may be.
std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa);

/// Where a work list lies in the workspace, and what decides its order.
struct WorkListSpec {
  TileOrder order;                  // of one sequence's heads; every one has `tiles` tiles
  std::int64_t tiles = 0;           // of one head, the most that there may be
  std::int64_t keys_per_group = 0;  // LengthsParams
  std::size_t bytes() const { return sizeof(WorkList) + tiles * sizeof(WorkItem); }
  std::int64_t all_tiles() const { return tiles * order.heads; }
};
/// Heads are taken in groups whose K and V take about head_group_mb MB, and where one head's take
/// more, so are sequences; 0: head after head.
WorkListSpec work_list_of(const Problem& problem, int block_m, int pack_gqa, int head_group_mb);

/// The step that writes the list to the beginning of the workspace.
LaunchStep work_list_step(const Problem& problem, const WorkListSpec& list);

/// Both steps. `step` takes the list, and may start before it is there (ptx/grid_dependency.cuh).
Launch with_work_list(const Problem& problem, const WorkListSpec& list, const Arch& arch,
                      LaunchStep step);

/// The launch of a kernel whose argument is a Params, with `order` after `fwd`, for whichever
/// lengths the problem has: `launch_of_tiles` or, with a list, a block for each tile that
/// there may be.
template <class Params>
Launch launch_of_any_lengths(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                             bool heavy_last, const Arch& arch, LaunchStep step) {
  if (problem.lengths == Lengths::kFixed) {
    const TileOrder order = tile_order(problem, block_m, pack_gqa, head_group_mb, heavy_last);
    return launch_of_tiles<Params>(problem, order, std::move(step));
  }
  const WorkListSpec list = work_list_of(problem, block_m, pack_gqa, head_group_mb);
  Argument argument = Argument::of<WithLengths<Params>>(step);
  argument.fwd(problem).value(list.order).template end_of_base<Params>();
  argument.lengths(list.keys_per_group, list.tiles).done();
  step.grid.x = static_cast<unsigned>(list.all_tiles());
  return with_work_list(problem, list, arch, std::move(step));
}

/// `names` of a kernel that reads lengths, if the shape has them: its piece, and its argument,
/// which is a WithLengths of the family's and has `params_bytes`.
KernelNames with_lengths(KernelNames names, const Shape& shape, std::size_t params_bytes);

/// The same for one that takes a work list: also its order, and the kernel of the step before.
/// `block_m` and `block_n` are how the config names them.
KernelNames with_work_list(KernelNames names, const Shape& shape, std::size_t params_bytes,
                           std::string_view block_m, std::string_view block_n);

}  // namespace attnforge
