#include "templates/parts/lengths/host.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"

namespace attnforge {

extern const Part queue_part;

extern const Part lengths_part;

namespace {

constexpr int kQueueThreads = 1024;  // one block
constexpr const char* kListKernel = "tile_queue";
static_assert(sizeof(StepParams) == sizeof(FwdParams), "kForwardSteps says so");

void fill_lengths(Entry& entry, const Assembly& a) {
  const Problem& p = a.problem;
  if (p.lengths == Lengths::kFixed) {  // of keys that are gathered
    entry.pieces.include("parts/lengths/params.h");
  } else if (p.lengths == Lengths::kUsed) {
    entry.pieces.fill(Slot::kLengths, {"UsedLengths", "parts/lengths/used_lengths.cuh"});
  } else if (has_packed_keys(p)) {
    entry.pieces.fill(Slot::kLengths, {"PackedLengths", "parts/lengths/packed_lengths.cuh"});
  } else {
    entry.pieces.fill(Slot::kLengths, {"PackedQueries", "parts/lengths/packed_queries.cuh"});
  }
}

constexpr Step kQueueStep{
    .kernel = kListKernel,
    .in = [](const Assembly& a) { return a.tiles == TileSource::kList && !a.lists_of_text(); },
    .text =
        [](Entry& entry, const Assembly& a) {
          return Step::Text{.threads = kQueueThreads,
                            .type = tile_queue_type(entry, a, kQueueThreads)};
        },
    .launch = [](const LaunchWork&) { return step_of(kListKernel, kQueueThreads, 0); }};

}  // namespace

std::string tile_queue_type(Entry& entry, const Assembly& a, int threads) {
  entry.pieces.include("parts/lengths/step_queue.cuh");
  return fmt::format(
      "MakeTileQueue<Pieces::Lengths, Pieces::Walk, kConfig.{}, kConfig.{}, kConfig.pack_gqa{}>",
      a.kernel.block_m, a.kernel.block_n,
      threads == kQueueThreads ? "" : fmt::format(", {}", threads));
}

LengthsParams lengths_params(const TileSchedule& tiles) {
  LengthsParams params{};
  params.keys_per_group = static_cast<int>(tiles.keys_per_group);
  params.most_tiles = static_cast<int>(tiles.tiles);
  return params;
}

void bind_lengths(LengthsParams& lengths, const Tensors& tensors, const RunMemory& memory) {
  lengths.q = tensors.lengths.q;
  lengths.kv = tensors.lengths.kv;
  lengths.work = static_cast<TileQueue*>(memory.workspace);
}

/// The arrays of lengths, and the list of query tiles that they and masks ask for.
constinit const Part lengths_part{
    .name = "lengths",
    .in = [](const Assembly& a) { return a.problem.lengths != Lengths::kFixed || a.gathers(); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithLengths<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(LengthsParams); },
    .add =
        [](Argument& argument, const LaunchWork& work) {
          ATTNFORGE_ASSERT(work.begin_of(lengths_part) == 0, "bind_lengths() finds it there");
          argument.own<bind_lengths>(lengths_params(work.tiles));
        },
    .fill = fill_lengths,
    .scratch = [](const LaunchWork& work) -> std::size_t {
      if (!work.tiles.listed()) return 0;
      return sizeof(TileQueue) + static_cast<std::size_t>(work.tiles.tiles) * sizeof(QueuedTile);
    }};

/// Where blocks find their query tiles when lengths or lists decide it.
constinit const Part queue_part{
    .name = "queue",
    .in =
        [](const Assembly& a) {
          return a.tiles == TileSource::kBound || a.tiles == TileSource::kList;
        },
    .fill =
        [](Entry& entry, const Assembly& a) {
          if (a.tiles == TileSource::kBound)
            entry.pieces.fill(Slot::kOrder, {"BoundOrder", "parts/lengths/bound_order.cuh"});
          else
            entry.pieces.fill(Slot::kOrder, {"QueueOrder", "parts/lengths/queue_order.cuh"});
        },
    .steps = {&kQueueStep, 1}};

}  // namespace attnforge
