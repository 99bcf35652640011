#include "templates/host/work_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "templates/host/fwd_params.h"
#include "templates/host/tile_order.h"

namespace attnforge {
namespace {

constexpr int kListThreads = 1024;  // of ListWork, one block
constexpr const char* kListKernel = "work_list";

}  // namespace

std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa) {
  const std::int64_t padded = problem.batch *
                              ((problem.seqlen_q * pack_gqa + block_m - 1) / block_m);
  if (problem.lengths != Lengths::kPacked) return padded;
  // The last tile of each sequence may have a single row.
  return std::min(padded, total_tokens(problem).q * pack_gqa / block_m + problem.batch);
}

TileWork tile_work(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                   bool heavy_last) {
  TileWork work;
  work.listed = shape_of(problem).has_work_list();
  if (!work.listed) {
    work.order = tile_order(problem, block_m, pack_gqa, head_group_mb, heavy_last);
    work.tiles = work.order.m_blocks;
    return work;
  }
  // The heads of all tokens as one sequence are what is grouped.
  Problem as_one = problem;
  as_one.lengths = Lengths::kFixed;
  as_one.batch = 1;
  as_one.seqlen_q = total_tokens(problem).q;
  as_one.seqlen_kv = total_tokens(problem).kv;
  work.order = tile_order(as_one, block_m, pack_gqa, head_group_mb, false);
  work.tiles = query_tiles_of_head(problem, block_m, pack_gqa);
  const std::int64_t group_bytes = std::int64_t{head_group_mb} << 20;
  if (head_group_mb > 0 && work.order.heads_per_group == 1 &&
      as_one.seqlen_kv * key_bytes(problem) > group_bytes)
    work.keys_per_group = std::max<std::int64_t>(1, group_bytes / key_bytes(problem));
  return work;
}

LengthsParams lengths_params(const TileWork& work) {
  LengthsParams params{};
  params.keys_per_group = static_cast<int>(work.keys_per_group);
  params.most_tiles = static_cast<int>(work.listed ? work.tiles : 0);
  return params;
}

namespace {

/// Writes the list to the beginning of the workspace.
LaunchStep list_step(const Problem& problem, const TileWork& work) {
  LaunchStep step = step_of(kListKernel, kListThreads, 0);
  Argument argument = Argument::of<WorkListParams>(step);
  argument.fwd(problem).part(lengths_params(work), LengthsArgument{}).done();
  return step;
}

}  // namespace

Launch launch_of_work(const Problem& problem, const TileWork& work, const Arch& arch,
                      LaunchStep step) {
  Launch result;
  if (work.all_tiles() == 0) return result;
  ATTNFORGE_ASSERT(work.all_tiles() <= kMaxGridX, "supports() lets no larger grid through");
  if (work.listed) {
    result.workspace_bytes = sizeof(WorkList) + work.tiles * sizeof(WorkItem);
    result.steps.reserve(2);
    result.steps.push_back(list_step(problem, work));
    step.overlaps_previous = arch.sm >= 90;
  }
  result.steps.push_back(std::move(step));
  return result;
}

const Part& lengths_part() {
  static constexpr Part kPart{
      .in = [](const Problem& p) { return p.lengths != Lengths::kFixed; },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithLengths<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(LengthsParams); },
      .add = [](Argument& argument, const Problem&,
                const TileWork& work) { argument.part(lengths_params(work), LengthsArgument{}); },
      .extend =
          [](KernelNames& names, const Problem& p) {
            if (p.lengths == Lengths::kPacked)
              names.other_pieces.push_back(
                  {"pieces/packed_lengths.cuh", "Lengths", "PackedLengths"});
            else
              names.other_pieces.push_back({"pieces/used_lengths.cuh", "Lengths", "UsedLengths"});
          }};
  return kPart;
}

KernelNames with_work_list(KernelNames names, const Shape& shape, std::string_view block_m,
                           std::string_view block_n) {
  if (!shape.has_work_list()) return names;
  names.other_pieces.push_back({"pieces/work_list_order.cuh", "Order", "WorkListOrder"});
  names.parts.push_back("steps/work_list/kernel.cuh");
  names.other_kernels = fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({threads})\n"
      "{symbol}(const __grid_constant__ WorkListParams p) {{\n"
      "  ListWork<Pieces::Lengths, Pieces::Walk, kConfig.{block_m}, kConfig.{block_n}, "
      "kConfig.pack_gqa>::run(p);\n"
      "}}\n",
      fmt::arg("threads", kListThreads), fmt::arg("symbol", kListKernel),
      fmt::arg("block_m", block_m), fmt::arg("block_n", block_n));
  return names;
}

}  // namespace attnforge
