// host.h - a kernel whose query tiles have several blocks, each for a split of the keys: pieces
// that write partial results, a step after it that merges them, and what both cost.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/problem.h"
#include "generator/arch.h"
#include "generator/family.h"
#include "generator/launch.h"
#include "generator/reason.h"
#include "templates/host/argument.h"
#include "templates/host/kernel_source.h"
#include "templates/host/part.h"
#include "templates/host/tile_source.h"
#include "templates/parts/splits/params.h"

namespace attnforge {

inline constexpr int kMostSplits = 256;

/// Of all rows, in the workspace.
std::int64_t partial_bytes(const Problem& problem, int splits);

/// Illegal: partial results that the GPU's memory does not hold.
Reason wrong_splits(const Problem& problem, int splits, const DeviceFacts& device);
/// Needless: `splits` of the keys that are more than there are key tiles of block_n or than fill
/// `places` twice, that a grid fills the GPU without, or that take a large workspace. `query_tiles`
/// are those of all heads. unequal: has_unequal_sequences().
Reason needless_splits(const Problem& problem, int splits, int block_n, double query_tiles,
                       double places, bool unequal);

/// Powers of two, and what fills the GPU with one, two or four blocks per SM, from what makes half
/// of the SMs busy on, or leaves a split 256 keys; only where query tiles leave SMs idle and keys
/// are many, or sequences are unequal. Of batch_invariant problems no fewer than a sequence that is
/// alone wants, within what merging may cost in a large batch.
Axis splits_axis(const Problem& problem, const DeviceFacts& device);

/// How many times as long unequal sequences take as equal ones, for what they leave idle at the
/// end.
double unequal_factor(const Shape& shape, const Problem& typical, int splits);

/// What the step takes.
double combine_us(const Problem& problem, int splits, const DeviceFacts& device);

/// `names` of a kernel that takes the pieces of DensePieces, with all else that it has already:
/// "Params" of a family is now "WithPartials<Params>". own_params is the family's own, block_n how
/// the config names it. grid_order: empty, or an Order of parts/splits/by_grid.cuh.
KernelNames with_splits(KernelNames names, const Problem& problem, TileSource source,
                        std::string_view own_params, std::string_view block_n,
                        std::string_view grid_order = {});

/// The places of a GPU for the blocks of a kernel that splits keys.
struct SplitPlaces {
  std::int64_t blocks;  // that are under way together
  bool shared;          // blocks of the step that merges find registers beside them
};

/// The partial results of a launch whose workspace holds the lists of `work`, too. at_once: splits
/// of a head that have a place on the GPU.
PartialParams partial_params(const Problem& problem, const TileWork& work, int splits, int at_once);
/// As the last member of an argument.
void add_partials(Argument& argument, const PartialParams& partials);

/// `launch`, of a kernel with a second dimension of the grid, and then the step that merges.
Launch with_combine(Launch launch, const Problem& problem, const TileWork& work, const Arch& arch,
                    const PartialParams& partials, const SplitPlaces& places);

/// The launch of a kernel that splits keys: `step` has its other dimensions of the grid, and
/// fill(Argument&) adds the members of Params.
template <class Params, class Fill>
Launch launch_of_splits(const Problem& problem, const TileWork& work, const Arch& arch,
                        LaunchStep step, int splits, const SplitPlaces& places, const Fill& fill) {
  const std::int64_t tiles = std::max<std::int64_t>(std::int64_t{step.grid.x} * step.grid.z, 1);
  const PartialParams partials = partial_params(
      problem, work, splits, static_cast<int>(places.blocks * problem.batch / tiles));
  fill_argument<WithPartials<Params>>(step, problem, work, [&](Argument& argument) {
    fill(argument);
    add_partials(argument.template end_of_base<Params>(), partials);
  });
  step.grid.y = static_cast<unsigned>(splits);
  return with_combine(launch_of_work(problem, work, arch, std::move(step)), problem, work, arch,
                      partials, places);
}

}  // namespace attnforge
