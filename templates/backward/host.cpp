#include "templates/backward/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/shape.h"
#include "generator/tensors/stored_rows.h"
#include "templates/host/fwd_params.h"
#include "templates/host/part.h"
#include "templates/host/score_pieces.h"
#include "templates/host/tile_source.h"
#include "templates/parts/query_bits/host.h"

namespace attnforge {
namespace {

constexpr const char *kRowsKernel = "bwd_rows", *kDqKernel = "bwd_dq", *kSinksKernel = "bwd_sinks",
                     *kTilesKernel = "bwd_tiles";
constexpr int kStepThreads = 256;  // kThreads of BwdRows, BwdDq, BwdSinks and BwdTiles

/// Query heads whose rows lie in one piece each: of every sequence, or of all packed ones.
std::int64_t all_heads(const Problem& problem) {
  return stored_rows(problem).batch * problem.num_heads_q;
}

std::int64_t kv_heads(const Problem& problem) {
  return stored_rows(problem).batch * problem.num_heads_kv;
}

/// BwdRows::kRows.
int rows_of_step_block(const Problem& problem) {
  constexpr int kSteps = 4;
  return kSteps * kStepThreads / std::min(32, next_power_of_two((problem.head_dim_v + 7) / 8));
}

std::int64_t padded_rows(const Problem& problem, int block_m) {
  return tiles_of_stored(problem, stored_rows(problem).q, block_m) * block_m;
}

/// Of so many query heads' sums of dq.
std::size_t sums_bytes(const Problem& problem, const BwdSteps& steps, std::int64_t heads) {
  return static_cast<std::size_t>(heads * padded_rows(problem, steps.block_m)) * steps.dq_columns *
         sizeof(float);
}
/// Of those that are zeros before the kernel.
std::size_t zero_sums_bytes(const Problem& problem, const BwdSteps& steps) {
  if (steps.turns != 0) return 0;
  return sums_bytes(problem, steps, steps.zero_heads != 0 ? steps.zero_heads : all_heads(problem));
}

LaunchStep step_around(const char* kernel, const Problem& problem, const BwdWork& work,
                       std::int64_t blocks) {
  ATTNFORGE_ASSERT(blocks <= kMaxGridX, "supports() lets no larger grid through");
  LaunchStep step = step_of(kernel, kStepThreads, 0);
  step.grid.x = static_cast<unsigned>(blocks);
  fill_argument<BwdStepParams>(step, problem, {}, [&](Argument& argument) {
    add_bwd(argument, problem).end_of_base<BwdParams>();
    add_scratch(argument, work);
    argument.scratch(work.turns);
    argument.value<u64>((work.dq_sums + zero_sums_bytes(problem, work.steps) - work.turns) / 16);
    argument.scratch(work.added);
    argument.value(work.steps.parts_of_head);
  });
  return step;
}

/// A step that a kernel's source has beside its own.
std::string step_kernel(const char* name, const std::string& body, const KernelNames& step) {
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ {} p) {{\n"
      "  {}::run(p);\n"
      "}}\n",
      kStepThreads, name, step.params, body);
}

}  // namespace

std::int64_t tiles_of_stored(const Problem& problem, std::int64_t rows, int rows_of_tile) {
  if (!stored_rows(problem).of_run || rows == 0) return (rows + rows_of_tile - 1) / rows_of_tile;
  return rows / rows_of_tile + problem.batch;
}

std::int64_t sink_blocks(const Problem& problem) { return problem.sinks ? problem.num_heads_q : 0; }

BwdWork bwd_work(const Problem& problem, const BwdSteps& steps) {
  const std::int64_t rows = padded_rows(problem, steps.block_m);
  const std::size_t of_rows = scratch_aligned(static_cast<std::size_t>(all_heads(problem) * rows) *
                                              sizeof(float));
  BwdWork work{.steps = steps};
  work.rows_padded = static_cast<int>(rows);
  // Before the rest: a kernel finds it by that (parts/query_bits/bits.cuh).
  work.lse_log2 = scratch_aligned(
      static_cast<std::size_t>(query_tile_bits(problem, steps.block_m, steps.block_n).bytes()));
  work.delta = work.lse_log2 + of_rows;
  work.turns = work.delta + of_rows;
  // What is zeros before the kernel: turns, counters, and of the sums the first or all.
  const auto tiles = static_cast<std::size_t>(all_heads(problem) * (rows / steps.block_m));
  work.counters = work.turns + scratch_aligned(tiles * steps.turns * sizeof(int));
  work.added = work.counters +
               scratch_aligned(static_cast<std::size_t>(steps.counters) * sizeof(int));
  const std::int64_t counted = steps.parts_of_head != 0 ? kv_heads(problem) : 0;
  work.dq_sums = work.added + scratch_aligned(static_cast<std::size_t>(counted) * sizeof(int));
  work.bytes = work.dq_sums + scratch_aligned(sums_bytes(problem, steps, all_heads(problem)));
  return work;
}

namespace {

TensorRef tensor_ref_of(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}

}  // namespace

template <bool kDlse>
void bind_gradients(GradientsParams& gradients, const Tensors& tensors, const RunMemory&) {
  const Gradients& given = tensors.gradients;
  gradients = {.dout = tensor_ref_of(given.dout),
               .dq = tensor_ref_of(given.dq),
               .dk = tensor_ref_of(given.dk),
               .dv = tensor_ref_of(given.dv),
               .dlse = kDlse ? given.dlse.data : nullptr,
               .dlse_stride_batch = given.dlse.stride_batch,
               .dlse_stride_head = given.dlse.stride_head,
               .dsinks = given.dsinks};
}
template void bind_gradients<false>(GradientsParams&, const Tensors&, const RunMemory&);
template void bind_gradients<true>(GradientsParams&, const Tensors&, const RunMemory&);

Argument& add_bwd(Argument& argument, const Problem& problem) {
  static_assert(sizeof(BwdParams) == sizeof(FwdParams) + sizeof(GradientsParams));
  argument.fwd(problem);
  return problem.dlse ? argument.own<bind_gradients<true>>(GradientsParams{})
                      : argument.own<bind_gradients<false>>(GradientsParams{});
}

void add_scratch(Argument& argument, const BwdWork& work) {
  struct Rest {
    int rows_padded, dq_columns;
  };
  static_assert(sizeof(BwdScratch) == 3 * sizeof(void*) + sizeof(Rest));
  argument.scratch(work.lse_log2).scratch(work.delta).scratch(work.dq_sums);
  argument.value(Rest{work.rows_padded, work.steps.dq_columns});
}

KernelNames with_bwd_steps(KernelNames names, const Problem& problem, const BwdSteps& steps) {
  const KernelNames of_step = with_parts<BwdStepParams>(
      {.params = "BwdStepParams", .gathers = names.gathers}, problem);
  names.parts.push_back("backward/step_rows.cuh");
  names.other_kernels += fmt::format("static_assert(sizeof({}) == {});\n", of_step.params,
                                     of_step.params_bytes);
  names.other_kernels += step_kernel(
      kRowsKernel, fmt::format("BwdRows<kConfig, Pieces::Lengths, {}>", steps.block_m), of_step);
  if (problem.sinks) {
    names.parts.push_back("parts/sinks/step_gradient.cuh");
    names.other_kernels += step_kernel(kSinksKernel, "BwdSinks<kConfig, Pieces::Lengths>", of_step);
  }
  if (const std::string step = listed_queries(names, problem, steps.block_m, steps.block_n);
      !step.empty())
    names.other_kernels += step_kernel(kTilesKernel, step, of_step);
  if (steps.dq_columns == 0) return names;
  names.parts.push_back("backward/step_dq.cuh");
  std::string tile = steps.dq_tile;
  if (tile.empty()) {
    names.parts.push_back("backward/dq_tile.cuh");
    tile = fmt::format("RowMajorDqTile<{}, {}>", steps.block_m, steps.dq_columns);
  }
  names.other_kernels += fmt::format("static_assert({0}::kRows == {1} && {0}::kColumns == {2});\n",
                                     tile, steps.block_m, steps.dq_columns);
  names.other_kernels += step_kernel(
      kDqKernel, fmt::format("BwdDq<kConfig, Pieces::Lengths, {}, {}>", tile, steps.turns),
      of_step);
  return names;
}

Launch with_bwd_steps(Launch launch, const Problem& problem, const BwdWork& work,
                      const Arch& arch) {
  const bool overlaps = arch.sm >= 90;
  launch.workspace_bytes = std::max(launch.workspace_bytes, work.bytes);
  const bool has_rows = problem.seqlen_q != 0 && problem.batch != 0;
  const auto add_after = [&](const char* kernel, std::int64_t blocks) {
    LaunchStep step = step_around(kernel, problem, work, blocks);
    step.overlaps_previous = overlaps && !launch.steps.empty();
    launch.steps.push_back(std::move(step));
    if (launch.steps.size() > 1) ++launch.steps_after;
  };
  if (has_rows) {
    const std::int64_t rows = rows_of_step_block(problem);
    if (!launch.steps.empty()) launch.steps.front().overlaps_previous = overlaps;
    launch.steps.insert(launch.steps.begin(),
                        step_around(kRowsKernel, problem, work,
                                    all_heads(problem) * ((work.rows_padded + rows - 1) / rows)));
    const QueryTileBits bits = query_tile_bits(problem, work.steps.block_m, work.steps.block_n);
    if (const std::int64_t words = bits.lists() * bits.words; words > 0) {
      constexpr int kWordsOfBlock = kStepThreads / 32;
      launch.steps.insert(
          launch.steps.begin(),
          step_around(kTilesKernel, problem, work, (words + kWordsOfBlock - 1) / kWordsOfBlock));
    }
    if (work.steps.dq_columns != 0)
      add_after(kDqKernel, all_heads(problem) * (work.rows_padded / work.steps.block_m));
  }
  if (const std::int64_t blocks = sink_blocks(problem); blocks > 0) add_after(kSinksKernel, blocks);
  return launch;
}

TileOrder key_tile_order(const Problem& problem, int block_n, int head_group_mb) {
  const StoredRows stored = stored_rows(problem);
  const double heads = double(kv_heads(problem));
  const double bytes = double(problem.seqlen_q) * gqa_group(problem) *
                       ((problem.head_dim + problem.head_dim_v) * 2.0 + problem.head_dim * 4.0);
  const double wanted = double(head_group_mb) * 1048576 / std::max(bytes, 1.0);
  return {.m_blocks = static_cast<int>(tiles_of_stored(problem, stored.kv, block_n)),
          .heads = static_cast<int>(heads),
          .heads_per_group = static_cast<int>(std::clamp(wanted, 1.0, std::max(heads, 1.0))),
          .heavy_last = 0};
}

std::vector<Piece> bwd_pieces(const Shape& shape) {
  std::vector<Piece> pieces = pieces_of(shape);
  pieces.push_back(slope_of(shape));
  pieces.push_back({"backward/query_walk.cuh", "Queries", kQueryWalk});
  return pieces;
}

double bwd_steps_us(const Problem& problem, const BwdSteps& steps, const DeviceFacts& device) {
  constexpr double kStepUs = 2.5;  // a launch that overlaps
  const double rows = static_cast<double>(all_heads(problem) * problem.seqlen_q);
  double bytes = rows * (2.0 * problem.head_dim_v * size_bytes(problem.dtype_o) + 16);
  double us = kStepUs;
  if (steps.dq_columns != 0) {
    bytes += static_cast<double>(zero_sums_bytes(problem, steps));
    bytes += static_cast<double>(sums_bytes(problem, steps, all_heads(problem)));  // read again
    bytes += rows * problem.head_dim * size_bytes(gradient_dtype(problem, problem.dtype_q));
    us += kStepUs;
  }
  if (problem.sinks) us += kStepUs;
  const double bytes_per_us = 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8;
  return us + bytes / std::max(bytes_per_us, 1.0);
}

}  // namespace attnforge
