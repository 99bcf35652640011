// splits.h - a kernel whose query tiles have several blocks, each for a split of the keys: pieces
// that write partial results, a step after it that merges them, and what both cost.
#pragma once

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
#include "templates/host/parts.h"
#include "templates/host/work_list.h"
#include "templates/params_partials.h"
#include "templates/params_split_merge.h"

namespace attnforge {

inline constexpr int kMostSplits = 256;
inline constexpr int kSplitSmemBytes = 16;  // beside a config's own: which split a block has

/// What merges the partial results of a query tile's splits.
enum class SplitMerge {
  kStep,       // after the kernel
  kLastBlock,  // of the tile to finish
  kCluster,    // that has all blocks of the tile
  kClusters,   // that have some of them each, and then the step
};

/// Blocks of a cluster; 0: none has so many splits.
int cluster_blocks(SplitMerge merge, int splits);
/// Shared memory that a block needs beside its config's own.
int merge_smem_bytes(SplitMerge merge, const Problem& problem, int rows, int splits);

/// Of all rows, in the workspace.
std::int64_t partial_bytes(const Problem& problem, int splits);

/// Reasons against `splits` of the keys: more than there are key tiles of block_n, more blocks than
/// fill `places` twice, a grid that fills the GPU without them, or a workspace beyond all bounds.
/// `query_tiles` are those of all heads. unequal: has_unequal_sequences().
Reason wrong_splits(const Problem& problem, int splits);
Reason needless_splits(const Problem& problem, int splits, int block_n, double query_tiles,
                       double places, bool unequal);

/// Reasons against merging in the kernel; query_tiles: of all heads; tiles_of_sequence: of a head
/// of one sequence.
Reason wrong_split_merge(SplitMerge merge, const Shape& shape, const Problem& typical, int splits,
                         double query_tiles, std::int64_t tiles_of_sequence, const Arch& arch);

/// Powers of two, and what fills the GPU with one, two or four blocks per SM, from what makes half
/// of the SMs busy on, or leaves a split 256 keys; only where query tiles leave SMs idle and keys
/// are many, or sequences are unequal.
Axis splits_axis(const Problem& problem, const DeviceFacts& device);

/// How many times as long unequal sequences take as equal ones, for what they leave idle at the
/// end.
double unequal_factor(const Shape& shape, const Problem& typical, int splits);

/// What the step takes, or what merges in its place.
double combine_us(const Problem& problem, int splits, const DeviceFacts& device,
                  SplitMerge merge = SplitMerge::kStep);

/// `names` of a kernel that takes the pieces of DensePieces, with all else that it has already:
/// "Params" of a family is now "WithPartials<Params>". own_params is the family's own, block_n how
/// the config names it. grid_order: empty, or an Order of pieces/grid_order.cuh.
KernelNames with_splits(KernelNames names, const Problem& problem, TileSource source,
                        std::string_view own_params, std::string_view block_n,
                        SplitMerge merge = SplitMerge::kStep, std::string_view grid_order = {});

/// PartialParams::splits_inverse.
u32 splits_inverse(int splits);

/// The partial results of a launch whose workspace holds the lists of `work`, too.
PartialParams partial_params(const Problem& problem, const TileWork& work, int splits);
/// As the last member of an argument.
void add_partials(Argument& argument, const PartialParams& partials);

/// Bytes of the workspace that holds them, too.
std::size_t bytes_with_partials(const Problem& problem, const TileWork& work, int splits);

/// `launch`, of a kernel with a second dimension of the grid, and then the step that merges.
Launch with_combine(Launch launch, const Problem& problem, const TileWork& work, const Arch& arch,
                    const PartialParams& partials);

/// The launch of a kernel that splits keys: `step` has its other dimensions of the grid, and
/// fill(Argument&) adds the members of Params.
template <class Params, class Fill>
Launch launch_of_splits(const Problem& problem, const TileWork& work, const Arch& arch,
                        LaunchStep step, int splits, const Fill& fill) {
  const PartialParams partials = partial_params(problem, work, splits);
  fill_argument<WithPartials<Params>>(step, problem, work, [&](Argument& argument) {
    fill(argument);
    add_partials(argument.template end_of_base<Params>(), partials);
  });
  step.grid.y = static_cast<unsigned>(splits);
  return with_combine(launch_of_work(problem, work, arch, std::move(step)), problem, work, arch,
                      partials);
}

/// The same of one whose last block of a tile merges, in the memory of `step`: no step follows.
template <class Params, class Fill>
Launch launch_of_counted_splits(const Problem& problem, const TileWork& work, const Arch& arch,
                                LaunchStep step, int splits, const Fill& fill) {
  using Partials = WithPartials<Params>;
  fill_argument<WithMergeCounters<Partials>>(step, problem, work, [&](Argument& argument) {
    fill(argument);
    add_partials(argument.template end_of_base<Params>(), partial_params(problem, work, splits));
    argument.template end_of_base<Partials>().counters().value(i64{0});
  });
  step.grid.y = static_cast<unsigned>(splits);
  Launch launch = launch_of_work(problem, work, arch, std::move(step));
  if (!launch.steps.empty()) launch.workspace_bytes = bytes_with_partials(problem, work, splits);
  return launch;
}

/// log2 of the quads of columns that a block of a cluster merges, of tiles of `rows` rows.
int cluster_share_log2(const Problem& problem, int rows, int blocks);

/// The same of one whose query tiles, of up to `rows` rows, have clusters.
template <class Params, class Fill>
Launch launch_of_clusters(const Problem& problem, const TileWork& work, const Arch& arch,
                          LaunchStep step, SplitMerge merge, int rows, int splits,
                          const Fill& fill) {
  using Partials = WithPartials<Params>;
  struct Share {
    int share_log2, unused[3];
  };
  const int blocks = cluster_blocks(merge, splits), parts = splits / blocks;
  PartialParams partials = partial_params(problem, work, parts);
  if (merge == SplitMerge::kCluster) partials = {.splits = 1};  // nothing is in the workspace
  partials.splits_inverse = splits_inverse(splits);
  fill_argument<WithClusterShare<Partials>>(step, problem, work, [&](Argument& argument) {
    fill(argument);
    add_partials(argument.template end_of_base<Params>(), partials);
    argument.template end_of_base<Partials>().value(
        Share{cluster_share_log2(problem, rows, blocks), {}});
  });
  step.grid.y = static_cast<unsigned>(splits);
  step.cluster.y = static_cast<unsigned>(blocks);
  step.smem_bytes += merge_smem_bytes(merge, problem, rows, splits);
  Launch launch = launch_of_work(problem, work, arch, std::move(step));
  if (merge == SplitMerge::kCluster) return launch;
  return with_combine(std::move(launch), problem, work, arch, partials);
}

}  // namespace attnforge
