// host.cpp - pieces that write partial results, and the step after the kernel that merges them.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "generator/tensors/stored_rows.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/host/split_counts.h"
#include "templates/parts/splits/params.h"

namespace attnforge {

extern const Part splits_part;

namespace {

constexpr const char* kCombineKernel = "combine_splits";
constexpr int kUnequalSplits = 16;  // what the step that merges expects of a long sequence
constexpr std::int64_t kMostMergeBlocks = 384;   // of that step, for rows to have more warps
constexpr std::int64_t kMostSpreadBlocks = 256;  // of it: two on each SM of a large GPU
constexpr int kCutBlocksPerSm = 3;               // of it after shares: registers for its loops
constexpr std::int64_t kMostCutBlocks = 384;     // about what then runs at once
static_assert(kMostSequencesOfSplits == kMostSharingSequences);

/// Blocks that are under way at once.
std::int64_t places(const LaunchWork& work) {
  return std::max(static_cast<std::int64_t>(places_of(work.assembly.kernel.tiling, work.device)),
                  std::int64_t{1});
}

/// Partial results of rows. Of shares each block has one more query tile than begin in it.
std::size_t results(const LaunchWork& work) {
  const std::int64_t rows = partial_rows(work.problem());
  if (work.tiles.source != TileSource::kShares)
    return static_cast<std::size_t>(rows) *
           static_cast<std::size_t>(work.assembly.kernel.tiling.num_splits);
  const std::int64_t tiles = std::max<std::int64_t>(work.tiles.all_tiles(), 1);
  return static_cast<std::size_t>(rows / tiles * (tiles + places(work)));
}
std::size_t o_bytes(const LaunchWork& work) {
  return scratch_aligned(results(work) * static_cast<std::size_t>(work.problem().head_dim_v) *
                         sizeof(float));
}

/// Of a launch, and of others of its kernel that have fewer rows and more splits.
std::size_t scratch_bytes(const LaunchWork& work) {
  const Problem& problem = work.problem();
  const std::size_t taken = o_bytes(work) + results(work) * sizeof(float);
  if (work.tiles.source == TileSource::kShares) return taken;
  const auto rows = static_cast<std::size_t>(
      most_partial_rows(problem, work.assembly.kernel.tiling, work.device));
  const auto row_bytes = static_cast<std::size_t>(partial_row_bytes(problem));
  return std::max(taken, scratch_aligned(rows * row_bytes) + scratch_aligned(1));
}

void fill_splits(Entry& entry, const Assembly& a) {
  constexpr const char* kHeader = "parts/splits/walk.cuh";
  constexpr const char* kOfLengths = "parts/splits/by_length.cuh";
  constexpr const char* kOfShares = "parts/splits/by_share.cuh";
  PieceSet& pieces = entry.pieces;
  const bool shares = a.tiles == TileSource::kShares, finishes = finishes_tiles(a.kernel.tiling);
  if (shares || a.tiles == TileSource::kLengths) {
    const char* const header = shares ? kOfShares : kOfLengths;
    pieces.fill(Slot::kSplits,
                {fmt::format("{}Splits<{}, {}, kConfig.{}, kConfig.pack_gqa{}>",
                             shares ? "Shared" : "Length", pieces.type(Slot::kLengths),
                             pieces.type(Slot::kWalk), a.kernel.block_n, finishes ? ", true" : ""),
                 header});
    pieces.fill(Slot::kOrder, {shares ? "ShareOrder<Splits>" : "LengthSplitOrder<Splits>", header});
  } else if (!a.kernel.grid_order.empty()) {
    pieces.fill(Slot::kSplits, {"GridSplits", kHeader});
    pieces.fill(Slot::kOrder, {fmt::format("SplitOrder<{}>", a.kernel.grid_order), kHeader});
  } else {
    pieces.fill(Slot::kSplits, {"EvenSplits", kHeader});
    pieces.wrap(Slot::kOrder, {"SplitOrder<{}>", kHeader});
  }
  if (shares)
    pieces.wrap(Slot::kWalk, {"ShareWalk<{}>", kOfShares});
  else
    pieces.wrap(Slot::kWalk, {"SplitWalk<{}, Splits>", kHeader});
  constexpr const char* kParameters = "template <int kDtype, int kAlignment, bool kLse> ";
  constexpr const char* kPartial = "PartialOutput<kConfig.head_dim_v, Splits>";
  const char* const whole = pieces.is_dense(Slot::kOutput) ? "RowsOutput<kDtype, kAlignment, kLse>"
                                                           : "{}";
  if (finishes)
    pieces.wrap(Slot::kOutput, {fmt::format("ShareOutput<{}, {}, Splits>", whole, kPartial),
                                kOfShares, kParameters});
  else
    pieces.fill(Slot::kOutput, {kPartial, kHeader, kParameters});
}

/// Warps that merge a row. A long sequence may have many more splits than its share, and rows may
/// be so many that blocks take turns: those whose turn comes late find out late how many theirs
/// have.
int row_warps(const LaunchWork& work) {
  const Problem& problem = work.problem();
  int warps = MergeShape::of(work.assembly.kernel.tiling.num_splits).warps;
  const bool unequal = work.tiles.source == TileSource::kLengths ||
                       work.tiles.source == TileSource::kShares;
  if (unequal && problem.batch > 1) {
    while (warps < MergeShape::of(kUnequalSplits).warps &&
           2 * warps * partial_rows(problem) <= kMostMergeBlocks * MergeShape::kWarps)
      warps *= 2;
  }
  return warps;
}

/// PartialParams::at_once.
std::int64_t places_at_once(const LaunchWork& work) {
  const QueryTiling& tiling = work.assembly.kernel.tiling;
  const std::int64_t batch = work.problem().batch,
                     tiles = std::max<std::int64_t>(work.tiles.all_tiles(), 1);
  if (work.tiles.source == TileSource::kShares) return places(work);
  if (tiling.threads == 0) return places(work) * batch / tiles;
  return batch * splits_of_equal(static_cast<double>(tiles), tiling.num_splits,
                                 static_cast<double>(places(work)));
}

void add_partials(Argument& argument, const LaunchWork& work) {
  static_assert(sizeof(PartialParams) == 2 * sizeof(void*) + 12 * sizeof(int));
  const Problem& problem = work.problem();
  const QueryTiling& tiling = work.assembly.kernel.tiling;
  const StoredRows stored = stored_rows(problem);
  const std::size_t begin = work.begin_of(splits_part);
  argument.scratch(begin).scratch(begin + o_bytes(work));
  const std::int64_t at_once = places_at_once(work);
  constexpr std::array<int, 5> kUnused{};
  argument.value(tiling.num_splits, static_cast<int>(stored.q), row_warps(work),
                 static_cast<int>(stored.batch), static_cast<int>(at_once),
                 splits_inverse_of(tiling.num_splits), team_of_shares(problem, tiling, work.device),
                 kUnused);
}

LaunchStep combine(const LaunchWork& work) {
  constexpr int kOtherSmemBytes = 4096;  // of a block: its own, and what the system takes
  const Problem& problem = work.problem();
  const Arch& arch = work.device.arch;
  const int rows = MergeShape::kWarps / row_warps(work);
  LaunchStep step = step_of(kCombineKernel, MergeShape::kThreads,
                            MergeShape::smem_bytes(static_cast<int>(problem.head_dim_v)),
                            (partial_rows(problem) + rows - 1) / rows);
  if (finishes_tiles(work.assembly.kernel.tiling)) {
    const std::int64_t tiles = std::max<std::int64_t>(work.tiles.all_tiles(), 1);
    const std::int64_t of_tile = (partial_rows(problem) / tiles + rows - 1) / rows;
    const std::int64_t columns = std::min(tiles, kMostCutBlocks);
    step.grid = {static_cast<unsigned>(columns), static_cast<unsigned>(std::clamp<std::int64_t>(
                                                     kMostCutBlocks / columns, 1, of_tile))};
  }
  // They start as SMs become free, and would crowd on the first of them: two have room on each.
  if (!work.assembly.kernel.shares_sms && step.grid.x <= kMostSpreadBlocks)
    step.smem_bytes = std::max(
        step.smem_bytes,
        std::min(arch.smem_per_sm_bytes / 2 - kOtherSmemBytes, arch.smem_per_block_bytes));
  return step;
}

constexpr Step kCombine{
    .kernel = kCombineKernel,
    .after = true,
    .text =
        [](Entry& entry, const Assembly& a) {
          const bool cut = finishes_tiles(a.kernel.tiling);
          entry.pieces.include(cut ? "parts/splits/step_combine_cut.cuh"
                                   : "parts/splits/step_combine.cuh");
          const int blocks = MergeShape::blocks_per_sm(static_cast<int>(a.problem.head_dim_v));
          return Step::Text{.threads = MergeShape::kThreads,
                            .blocks_per_sm = cut ? std::min(blocks, kCutBlocksPerSm) : blocks,
                            .type = cut ? "CombineCut<kConfig, Pieces::Lengths, Pieces::Splits>"
                                        : "Combine<kConfig, Pieces::Lengths, Pieces::Splits>"};
        },
    .launch = combine};

}  // namespace

constinit const Part splits_part{
    .name = "splits",
    .in = [](const Assembly& a) { return a.splits(); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithPartials<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(PartialParams); },
    .add = add_partials,
    .steps_have_it = false,
    .fill = fill_splits,
    .steps = {&kCombine, 1},
    .scratch = scratch_bytes};

}  // namespace attnforge
