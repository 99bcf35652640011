#include "templates/host/tile_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/problem/bucket.h"
#include "generator/shape.h"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/host/tile_order.h"
#include "templates/parts/splits/params.h"

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

std::size_t TileWork::lists_begin() const {
  constexpr std::size_t kAligned = 16;
  const std::size_t bytes = listed() ? sizeof(WorkList) + tiles * sizeof(WorkItem) : 0;
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

TileSource tile_source(const Problem& problem, bool key_lists, const QueryTiling& tiling) {
  constexpr std::int64_t kMostKeys = 1 << 30;  // of all: key tiles are counted in 32 bits
  constexpr std::int64_t kSms = 128;           // of a large GPU
  if (key_lists && !tiling.own_lists) return TileSource::kList;
  if (problem.lengths == Lengths::kFixed) return TileSource::kSizes;
  const std::int64_t rows = bucket_seqlen(problem.seqlen_q) * tiling.pack_gqa,
                     tiles_of_sequence = (rows + tiling.block_m - 1) / tiling.block_m;
  // Nothing of the batch may decide anything.
  if (problem.batch_invariant)
    return tiles_of_sequence <= 1 ? TileSource::kBound : TileSource::kList;
  const std::int64_t batch = bucket_batch(problem.batch);
  if (tiling.splits && tiles_of_sequence <= 1 && problem.lengths == Lengths::kUsed &&
      batch <= kMostSharingSequences && batch * bucket_seqlen(problem.seqlen_kv) <= kMostKeys)
    return TileSource::kLengths;
  const std::int64_t tiles = batch * (problem.num_heads_q / tiling.pack_gqa) * tiles_of_sequence;
  return tiles <= kSms * tiling.blocks_per_sm ? TileSource::kBound : TileSource::kList;
}

int split_smem_bytes(const Shape& shape) {
  constexpr int kWhichSplit = 16;
  return kWhichSplit + (shape.lengths == kUsedLengths ? 4 * kMostSharingSequences : 0);
}

bool has_unequal_sequences(const Problem& problem) {
  return problem.lengths == Lengths::kUsed && problem.batch > 1 && !problem.batch_invariant &&
         has_few_rows(problem);
}
bool has_unequal_sequences(const Shape& shape, const Problem& typical) {
  return shape.lengths == kUsedLengths && !shape.has_tile_lists() && typical.batch > 1 &&
         !typical.batch_invariant && has_few_rows(typical);
}

TileWork tile_work(const Problem& problem, const Shape& shape, const QueryTiling& tiling,
                   int block_n, int head_group_mb, bool heavy_last) {
  const int block_m = tiling.block_m, pack_gqa = tiling.pack_gqa;
  TileWork work;
  if (block_n > 0) work.lists = tile_lists(problem, shape, block_m, block_n);
  work.source = tile_source(problem, work.lists.groups > 0, tiling);
  if (!work.listed()) {
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
  params.most_tiles = static_cast<int>(work.listed() ? work.tiles : 0);
  return params;
}

void bind_lengths(LengthsParams& lengths, const Tensors& tensors, const RunMemory& memory) {
  lengths.q = tensors.lengths.q;
  lengths.kv = tensors.lengths.kv;
  lengths.work = static_cast<WorkList*>(memory.workspace);
}

namespace {

/// `step` with the argument that steps before a kernel have.
LaunchStep with_argument(LaunchStep step, const Problem& problem, const TileWork& work) {
  fill_argument<StepParams>(step, problem, work,
                            [&](Argument& argument) { argument.fwd(problem); });
  return step;
}

}  // namespace

Launch launch_of_work(const Problem& problem, const TileWork& work, const Arch& arch,
                      LaunchStep step) {
  Launch result;
  if (work.all_tiles() == 0) return result;
  ATTNFORGE_ASSERT(work.all_tiles() <= kMaxGridX, "supports() lets no larger grid through");
  result.steps.reserve(4);  // with those that list tiles, or combine
  if (work.listed()) {
    result.workspace_bytes = work.lists_begin() + work.lists.bytes();
    if (work.lists.lists() > 0) {
      for (LaunchStep& before : tile_list_steps(work.lists))
        result.steps.push_back(with_argument(std::move(before), problem, work));
    }
    result.steps.push_back(with_argument(step_of(kListKernel, kListThreads, 0), problem, work));
  }
  result.steps.push_back(std::move(step));
  for (std::size_t i = 1; i < result.steps.size(); ++i)
    result.steps[i].overlaps_previous = arch.sm >= 90;
  return result;
}

/// The arrays of lengths, and the list of query tiles that they and masks ask for.
const Part& lengths_part() {
  static constexpr Part kPart{
      .in =
          [](const Problem& p, bool gathers) {
            return p.lengths != Lengths::kFixed || (gathers && shape_of(p).has_tile_lists());
          },
      .type = [](const Problem&,
                 std::string_view params) { return fmt::format("WithLengths<{}>", params); },
      .bytes = [](const Problem&) { return sizeof(LengthsParams); },
      .add = [](Argument& argument, const Problem&,
                const TileWork& work) { argument.own<bind_lengths>(lengths_params(work)); },
      .extend =
          [](KernelNames& names, const Problem& p) {
            if (p.lengths == Lengths::kPacked && !has_packed_keys(p))
              names.other_pieces.push_back(
                  {"parts/lengths/packed_queries.cuh", "Lengths", "PackedQueries"});
            if (has_packed_keys(p))
              names.other_pieces.push_back(
                  {"parts/lengths/packed_lengths.cuh", "Lengths", "PackedLengths"});
            if (p.lengths == Lengths::kUsed)
              names.other_pieces.push_back(
                  {"parts/lengths/used_lengths.cuh", "Lengths", "UsedLengths"});
          }};
  return kPart;
}

KernelNames with_tile_source(KernelNames names, const Problem& problem, const Shape& shape,
                             TileSource source, std::string_view block_m,
                             std::string_view block_n) {
  if (source == TileSource::kBound)
    names.other_pieces.push_back({"parts/lengths/bound_order.cuh", "Order", "BoundOrder"});
  if (source != TileSource::kList) return names;
  const bool gathers = names.gathers && shape.has_tile_lists();
  const std::string params = argument_type(problem, names.gathers, "StepParams");
  if (gathers) names = with_tile_lists(std::move(names), shape, params, block_m, block_n);
  names.other_pieces.push_back({"parts/lengths/queue_order.cuh", "Order", "WorkListOrder"});
  names.parts.push_back("parts/lengths/step_queue.cuh");
  names.other_kernels += fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({threads})\n"
      "{symbol}(const __grid_constant__ {params} p) {{\n"
      "  ListWork<Pieces::Lengths, Pieces::Walk, kConfig.{block_m}, kConfig.{block_n}, "
      "kConfig.pack_gqa>::run(p);\n"
      "}}\n",
      fmt::arg("threads", kListThreads), fmt::arg("symbol", kListKernel),
      fmt::arg("params", params), fmt::arg("block_m", block_m), fmt::arg("block_n", block_n));
  return names;
}

}  // namespace attnforge
