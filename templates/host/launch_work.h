// launch_work.h - the launch of an assembled kernel: its argument with the members of all parts,
// their scratch in the workspace, and their steps around it.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "attnforge/device.h"
#include "generator/launch.h"
#include "templates/host/argument.h"
#include "templates/host/assembly.h"
#include "templates/host/tile_order.h"

namespace attnforge {

/// Borrows what it was made of.
struct LaunchWork {
  const Assembly& assembly;
  const DeviceFacts& device;
  TileSchedule tiles{};                         // of query tiles, or of packed key tiles
  std::array<std::size_t, kMaxParts> begins{};  // of the scratch of each of assembly.parts
  std::size_t workspace_bytes = 0;              // of all scratch
  const Problem& problem() const { return assembly.problem; }
  /// Where the scratch of a part begins in the workspace: after that of parts before it, also
  /// where it has none.
  std::size_t begin_of(const Part& part) const;
};
LaunchWork launch_work(const Assembly& assembly, const DeviceFacts& device,
                       const TileSchedule& tiles = {});
/// Of a forward kernel whose heads are walked in groups of head_group_mb MB.
LaunchWork launch_work(const Assembly& assembly, const DeviceFacts& device, int head_group_mb);
/// The work of a kernel without steps, which launches alike everywhere.
LaunchWork launch_work(const Assembly& assembly);

/// The members of parts that the argument of a step of this part has, or of the kernel (null).
void add_parts(Argument& argument, const LaunchWork& work, const Part* of_step);

/// Fills the argument of the family's own `step`: fill(Argument&) adds what its Params has, and
/// what parts need comes after it.
template <class Fill>
void fill_argument(LaunchStep& step, const LaunchWork& work, const Fill& fill) {
  const OwnParams& own = work.assembly.kernel.params;
  Argument argument = Argument::of_size(step, argument_bytes(work.assembly));
  fill(argument);
  argument.end_of_base(own.bytes, own.alignment);
  add_parts(argument, work, nullptr);
  argument.done();
}

/// The family's own steps, which are moved from, among those of parts. The first of them is the
/// config's kernel; there may be none. From sm_90 on each overlaps with the one before it, unless
/// its part says otherwise.
Launch launch_of(const LaunchWork& work, std::span<LaunchStep> own);

/// The launch of a forward kernel by tiles: `step`, whose argument and grid are set. No steps if
/// there are no tiles.
Launch launch_of_tiles(const LaunchWork& work, LaunchStep step);

}  // namespace attnforge
