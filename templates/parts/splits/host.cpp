#include "templates/parts/splits/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attnforge/error.h"
#include "generator/tensors/stored_rows.h"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/host/tile_order.h"

namespace attnforge {
namespace {

constexpr const char* kCombineKernel = "combine_splits";
constexpr int kSplitsOfFullGrid = 4;  // of a sequence of mean length, where others are unequal
constexpr int kUnequalSplits = 16;    // what the step that merges expects of a long sequence
constexpr std::int64_t kMostMergeBlocks = 384;   // of that step, for rows to have more warps
constexpr std::int64_t kMostSpreadBlocks = 256;  // of it: two on each SM of a large GPU
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of partial results, in a search

std::int64_t all_rows(const Problem& problem) {
  const StoredRows stored = stored_rows(problem);
  return stored.batch * problem.num_heads_q * stored.q;
}

std::size_t begin_of(const TileWork& work) {
  return work.listed() ? scratch_aligned(work.lists_begin() + work.lists.bytes()) : 0;
}
std::size_t o_bytes(const Problem& problem, int splits) {
  return scratch_aligned(static_cast<std::size_t>(all_rows(problem)) * splits * problem.head_dim_v *
                         sizeof(float));
}

/// The type of the piece of this name, which makes room for another.
std::string take_piece(KernelNames& names, std::string_view name) {
  const auto piece = std::ranges::find(names.other_pieces, name, &Piece::name);
  if (piece == names.other_pieces.end()) return fmt::format("{}<kConfig>::{}", names.pieces, name);
  names.parts.push_back(piece->header);
  std::string type = std::move(piece->type);
  names.other_pieces.erase(piece);
  return type;
}

std::int64_t kv_bytes(const Problem& problem) {
  const std::int64_t of_key = problem.head_dim * size_bytes(problem.dtype_k) +
                              problem.head_dim_v * size_bytes(problem.dtype_v);
  return problem.batch * problem.num_heads_kv * problem.seqlen_kv * of_key;
}

/// What a batch_invariant config gives each sequence: splits for half of the SMs where it is
/// alone, or fewer where merging so many took more than a sixteenth of the time to read its keys,
/// which is what counts in a large batch.
double least_of_every_batch(const Problem& typical, double busy_alone) {
  constexpr double kMostMerged = 1.0 / 16;
  const double bytes_of_split = 2.0 * double(partial_bytes(typical, 1));  // written and read
  return std::min(busy_alone, kMostMerged * double(kv_bytes(typical)) / bytes_of_split);
}

}  // namespace

std::int64_t partial_bytes(const Problem& problem, int splits) {
  return all_rows(problem) * splits * (problem.head_dim_v + 1) *
         static_cast<std::int64_t>(sizeof(float));
}

Reason wrong_splits(const Problem& problem, int splits, const DeviceFacts& device) {
  if (splits == 1) return "";
  const std::int64_t bytes = partial_bytes(problem, splits);
  if (bytes <= device.memory_bytes) return "";
  return Reason("the partial results of {} splits take {} GB, more than the GPU's memory", splits,
                bytes >> 30);
}

Reason needless_splits(const Problem& problem, int splits, int block_n, double query_tiles,
                       double places, bool unequal) {
  constexpr double kMostRounds = 2;
  if (splits == 1) return "";
  if (partial_bytes(problem, splits) > kMostBytes)
    return "the partial results of so many splits do not fit 1 GB";
  if (problem.batch_invariant) return "";  // another batch may need them
  if (splits > (problem.seqlen_kv + block_n - 1) / block_n) return "more splits than key tiles";
  if (unequal && splits <= kSplitsOfFullGrid) return "";
  if (query_tiles >= places) return "query tiles fill the GPU without splits";
  if (query_tiles * splits > kMostRounds * places) return "fewer splits fill the GPU twice";
  return "";
}

Axis splits_axis(const Problem& problem, const DeviceFacts& device) {
  constexpr int kMostBlocksPerSm = 4, kLeastKeys = 256, kLeastKeysOfSplit = 128,
                kLeastKeysOfManyRows = 2048,
                kMostRounds = 16;      // of blocks, after which the longest sequence hardly shows
  constexpr double kLeastBusy = 0.45;  // of the SMs: 64 of 132, too
  Axis axis{"num_splits", {1}, {2, 4, 8}};
  const Problem typical = typical_problem(problem);
  const bool few = has_few_rows(typical);
  // Of many rows in a batch of any size, partial results would fill the memory.
  if (!few && problem.batch_invariant) return axis;
  const int most = few ? kMostBlocksPerSm : 1;
  const double tiles = double(typical.batch) * (few ? double(typical.num_heads_kv)
                                                    : std::ceil(double(typical.seqlen_q) / 128) *
                                                          double(typical.num_heads_q));
  if (tiles <= 0 || typical.seqlen_kv < (few ? kLeastKeys : kLeastKeysOfManyRows)) return axis;
  if (2 * tiles > most * device.num_sms) {
    if (has_unequal_sequences(problem) && tiles <= kMostRounds * device.num_sms)
      axis = {"num_splits", {1, 2, kSplitsOfFullGrid}, {8}};
    return axis;
  }
  axis.only_forced.clear();
  const double fill = device.num_sms / tiles,
               useful = double(typical.seqlen_kv) / kLeastKeysOfSplit;
  const auto busy = [&](double all) { return kLeastBusy * std::min(all, useful); };
  const double least = problem.batch_invariant
                           ? least_of_every_batch(typical, busy(fill * double(typical.batch)))
                           : busy(fill);
  const auto add = [&](double splits) {
    const int whole = static_cast<int>(std::min<double>(splits, kMostSplits));
    if (whole > 1 && whole > least && std::ranges::find(axis.values, whole) == axis.values.end())
      axis.values.push_back(whole);
  };
  for (int blocks = 1; blocks <= most; blocks *= 2) add(std::floor(blocks * fill));
  for (int splits = 2; splits <= 128 && splits <= 2 * most * fill; splits *= 2) add(splits);
  return axis;
}

double unequal_factor(const Shape& shape, const Problem& typical, int splits) {
  constexpr double kIdle = 0.15;  // of a longest sequence that is under way alone
  return has_unequal_sequences(shape, typical) ? 1 + kIdle / splits : 1.0;
}

double combine_us(const Problem& problem, int splits, const DeviceFacts& device) {
  constexpr double kStepUs = 2.5;  // its launch overlaps; it waits for the last block, then reads
  if (splits == 1) return 0;
  const double bytes_per_us = 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8;
  return kStepUs + 2.0 * double(partial_bytes(problem, splits)) / std::max(bytes_per_us, 1.0);
}

KernelNames with_splits(KernelNames names, const Problem& problem, TileSource source,
                        std::string_view own_params, std::string_view block_n,
                        std::string_view grid_order) {
  constexpr const char* kHeader = "parts/splits/walk.cuh";
  const std::string walk = take_piece(names, "Walk"), order = take_piece(names, "Order");
  if (source == TileSource::kLengths) {
    constexpr const char* kOfLengths = "parts/splits/by_length.cuh";
    const auto lengths = std::ranges::find(names.other_pieces, "Lengths", &Piece::name);
    ATTNFORGE_ASSERT(lengths != names.other_pieces.end(), "only the device knows lengths");
    names.other_pieces.push_back({kOfLengths, "Splits",
                                  fmt::format("LengthSplits<{}, {}, kConfig.{}, kConfig.pack_gqa>",
                                              lengths->type, walk, block_n)});
    names.other_pieces.push_back({kOfLengths, "Order", "LengthSplitOrder<Splits>"});
  } else if (grid_order.empty()) {
    names.other_pieces.push_back({kHeader, "Splits", "EvenSplits"});
    names.other_pieces.push_back({kHeader, "Order", fmt::format("SplitOrder<{}>", order)});
  } else {
    names.other_pieces.push_back({"parts/splits/by_grid.cuh", "Splits", "GridSplits"});
    names.other_pieces.push_back({kHeader, "Order", fmt::format("SplitOrder<{}>", grid_order)});
  }
  names.other_pieces.push_back({kHeader, "Walk", fmt::format("SplitWalk<{}, Splits>", walk)});
  // What stores whole rows has no place here: the step does.
  std::erase_if(names.other_pieces, [](const Piece& piece) { return piece.name == "Output"; });
  names.other_pieces.push_back(
      {kHeader, "Output",
       fmt::format("PartialOutput<WithPartials<{}>, kConfig.head_dim_v, Splits>", own_params),
       "template <int kDtype, int kAlignment, bool kLse> "});
  names.parts.push_back("parts/splits/step_combine.cuh");
  const KernelNames step = with_parts<WithPartials<StepParams>>(
      {.params = "WithPartials<StepParams>", .gathers = names.gathers}, problem);
  names.other_kernels += fmt::format(
      "static_assert(sizeof({0}) == {1});\n"
      "extern \"C\" __global__ void __launch_bounds__({2}, {4})\n"
      "{3}(const __grid_constant__ {0} p) {{\n"
      "  Combine<kConfig, Pieces::Lengths, Pieces::Splits>::run(p);\n"
      "}}\n",
      step.params, step.params_bytes, MergeShape::kThreads, kCombineKernel,
      MergeShape::blocks_per_sm(static_cast<int>(problem.head_dim_v)));
  return names;
}

PartialParams partial_params(const Problem& problem, const TileWork& work, int splits,
                             int at_once) {
  PartialParams params{};
  const std::size_t begin = begin_of(work);
  params.o = reinterpret_cast<float*>(begin);
  params.lse = reinterpret_cast<float*>(begin + o_bytes(problem, splits));
  params.splits = splits;
  params.row_warps = MergeShape::of(splits).warps;
  // A long sequence may have many more than its share, and rows may be so many that blocks take
  // turns: those whose turn comes late find out late how many splits their rows have.
  if (work.source == TileSource::kLengths && problem.batch > 1) {
    while (params.row_warps < MergeShape::of(kUnequalSplits).warps &&
           2 * params.row_warps * all_rows(problem) <= kMostMergeBlocks * MergeShape::kWarps)
      params.row_warps *= 2;
  }
  const StoredRows stored = stored_rows(problem);
  params.rows_of_head = static_cast<int>(stored.q);
  params.tensors = static_cast<int>(stored.batch);
  params.at_once = at_once;
  params.splits_inverse = splits_inverse_of(splits);
  return params;
}

void add_partials(Argument& argument, const PartialParams& partials) {
  struct Rest {
    int splits, rows_of_head, row_warps, tensors, at_once;
    u32 splits_inverse;
    int unused[6];
  };
  static_assert(sizeof(PartialParams) == 2 * sizeof(void*) + sizeof(Rest));
  argument.scratch(reinterpret_cast<std::size_t>(partials.o));
  argument.scratch(reinterpret_cast<std::size_t>(partials.lse));
  argument.value(Rest{partials.splits,
                      partials.rows_of_head,
                      partials.row_warps,
                      partials.tensors,
                      partials.at_once,
                      partials.splits_inverse,
                      {}});
}

Launch with_combine(Launch launch, const Problem& problem, const TileWork& work, const Arch& arch,
                    const PartialParams& partials, const SplitPlaces& places) {
  constexpr int kOtherSmemBytes = 4096;  // of a block: its own, and what the system takes
  if (launch.steps.empty()) return launch;
  LaunchStep step = step_of(kCombineKernel, MergeShape::kThreads,
                            MergeShape::smem_bytes(problem.head_dim_v));
  fill_argument<WithPartials<StepParams>>(step, problem, work, [&](Argument& argument) {
    add_partials(argument.fwd(problem).end_of_base<StepParams>(), partials);
  });
  const int rows = MergeShape::kWarps / partials.row_warps;
  step.grid.x = static_cast<unsigned>((all_rows(problem) + rows - 1) / rows);
  step.overlaps_previous = arch.sm >= 90;
  // They start as SMs become free, and would crowd on the first of them: two have room on each.
  if (!places.shared && step.grid.x <= kMostSpreadBlocks)
    step.smem_bytes = std::max(
        step.smem_bytes,
        std::min(arch.smem_per_sm_bytes / 2 - kOtherSmemBytes, arch.smem_per_block_bytes));
  launch.steps.push_back(std::move(step));
  launch.steps_after = 1;
  launch.workspace_bytes = begin_of(work) + o_bytes(problem, partials.splits) +
                           static_cast<std::size_t>(all_rows(problem)) * partials.splits *
                               sizeof(float);
  return launch;
}

}  // namespace attnforge
