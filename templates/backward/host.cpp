#include "templates/backward/host.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/tensors/stored_rows.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/host/memory_time.h"

namespace attnforge {

extern const Part gradients_part;

namespace {

constexpr const char *kRowsKernel = "bwd_rows", *kDqKernel = "bwd_dq";
constexpr BasePieces::Dense kDenseOfBackward[] = {
    {Slot::kSlope, "PlainSlope", "backward/plain_slope.cuh"},
    {Slot::kQueries, "QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0>",
     "backward/query_walk.cuh"},
};

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
  return kSteps * kBwdStepThreads / std::min(32, next_power_of_two((problem.head_dim_v + 7) / 8));
}

bool lists_key_tiles(const Problem& problem, const BwdSteps& steps) {
  return steps.lists_key_tiles && problem.lengths == Lengths::kPacked;
}

/// Of how many key tiles there are, and of these; there is one even where no sequence has a key.
std::size_t list_bytes(const Problem& problem, const BwdSteps& steps) {
  if (!lists_key_tiles(problem, steps)) return 0;
  const std::int64_t tiles = tiles_of_stored(problem, stored_rows(problem).kv, steps.block_n);
  return static_cast<std::size_t>((1 + std::max<std::int64_t>(tiles, 1)) * listed_key_tile_bytes());
}

std::int64_t padded_rows(const Problem& problem, int block_m) {
  return tiles_of_stored(problem, stored_rows(problem).q, block_m) * block_m;
}

/// Bytes of the sums of dq of this many query heads.
std::size_t sums_bytes(const Problem& problem, const BwdSteps& steps, std::int64_t heads) {
  return static_cast<std::size_t>(heads * padded_rows(problem, steps.block_m)) * steps.dq_columns *
         sizeof(float);
}
/// Bytes of the sums that are zeros before the kernel.
std::size_t zero_sums_bytes(const Problem& problem, const BwdSteps& steps) {
  if (steps.turns != 0) return 0;
  return sums_bytes(problem, steps, steps.zero_heads != 0 ? steps.zero_heads : all_heads(problem));
}

void add_step_argument(Argument& argument, const LaunchWork& of_launch) {
  const BwdWork work = bwd_work(of_launch);
  add_bwd(argument, of_launch.problem()).end_of_base<BwdParams>();
  add_scratch(argument, work);
  argument.scratch(work.turns);
  argument.value<u64>(
      (work.dq_sums + zero_sums_bytes(of_launch.problem(), work.steps) - work.turns) / 16);
  argument.scratch(work.added);
  argument.value(work.steps.parts_of_head);
}

Step::Text rows_text(Entry& entry, const Assembly& a) {
  entry.pieces.include("backward/step_rows.cuh");
  const BwdSteps& steps = *a.kernel.gradients;
  const std::string keys = lists_key_tiles(a.problem, steps) ? fmt::format(", {}", steps.block_n)
                                                             : "";
  return {.threads = kBwdStepThreads,
          .type = fmt::format("BwdRows<kConfig, Pieces::Lengths, {}{}>", steps.block_m, keys)};
}

LaunchStep rows_step(const LaunchWork& of_launch) {
  const Problem& problem = of_launch.problem();
  if (!has_rows(problem)) return bwd_step(kRowsKernel, 0);
  const std::int64_t rows = rows_of_step_block(problem),
                     all = padded_rows(problem, of_launch.assembly.kernel.gradients->block_m);
  return bwd_step(kRowsKernel, all_heads(problem) * ((all + rows - 1) / rows));
}

Step::Text dq_text(Entry& entry, const Assembly& a) {
  const BwdSteps& steps = *a.kernel.gradients;
  entry.pieces.include("backward/step_dq.cuh");
  std::string tile = steps.dq_tile;
  if (tile.empty()) {
    entry.pieces.include("backward/dq_tile.cuh");
    tile = fmt::format("RowMajorDqTile<{}, {}>", steps.block_m, steps.dq_columns);
  }
  return {.threads = kBwdStepThreads,
          .type = fmt::format("BwdDq<kConfig, Pieces::Lengths, {}, {}{}>", tile, steps.turns,
                              lists_key_tiles(a.problem, steps) ? ", true" : ""),
          .declarations = fmt::format("static_assert({0}::kRows == {1} && {0}::kColumns == {2});\n",
                                      tile, steps.block_m, steps.dq_columns)};
}

LaunchStep dq_step(const LaunchWork& of_launch) {
  const Problem& problem = of_launch.problem();
  if (!has_rows(problem)) return bwd_step(kDqKernel, 0);
  const int block_m = of_launch.assembly.kernel.gradients->block_m;
  return bwd_step(kDqKernel, all_heads(problem) * (padded_rows(problem, block_m) / block_m));
}

/// The kernel waits for the rows, and these do not wait.
constexpr Step kSteps[] = {
    {.kernel = kRowsKernel, .overlaps = false, .text = rows_text, .launch = rows_step},
    {.kernel = kDqKernel,
     .after = true,
     .in = [](const Assembly& a) { return a.kernel.gradients->dq_columns != 0; },
     .text = dq_text,
     .launch = dq_step},
};

}  // namespace

const StepArgument kBwdStepArgument{OwnParams::of<BwdStepParams>("BwdStepParams"),
                                    add_step_argument};
const BasePieces kBackwardPieces{
    .type = "DensePieces", .header = "pieces/dense.cuh", .more = kDenseOfBackward};

/// What becomes of rows before a backward kernel, and of dq after it.
constinit const Part gradients_part{
    .name = "gradients",
    .in = [](const Assembly& a) { return a.kernel.gradients != nullptr; },
    .steps = kSteps,
    .scratch =
        [](const LaunchWork& work) {
          return bwd_work(work.problem(), *work.assembly.kernel.gradients).bytes;
        }};

Reason too_many_bwd_blocks(const Problem& problem) {
  constexpr double kFewestRows = 32, kMostPadding = 256;  // of a block, of the rows of a sequence
  const double q = double(problem.seqlen_q), kv = double(problem.seqlen_kv);
  const double heads = double(problem.batch) * double(problem.num_heads_q);
  if (Reason no = too_many_blocks((q + kv + 2 * kMostPadding) / kFewestRows * heads)) return no;
  // Under a block mask a warp of a step makes a word of bits of 32 query tiles, for each key tile.
  constexpr double kWordsOfBlock = kBwdStepThreads / 32;
  const double words = (kv / kFewestRows + 1) * (q / kFewestRows / 32 + 1);
  return too_many_blocks(double(problem.mask_heads * problem.mask_batch) * words / kWordsOfBlock);
}

LaunchStep bwd_step(const char* kernel, std::int64_t blocks) {
  ATTNFORGE_ASSERT(blocks <= kMaxGridX, "supports() lets no larger grid through");
  return step_of(kernel, kBwdStepThreads, 0, blocks);
}

bool has_rows(const Problem& problem) { return problem.seqlen_q != 0 && problem.batch != 0; }

std::int64_t tiles_of_stored(const Problem& problem, std::int64_t rows, int rows_of_tile) {
  if (!stored_rows(problem).of_run || rows == 0) return (rows + rows_of_tile - 1) / rows_of_tile;
  return rows / rows_of_tile + problem.batch;
}

std::int64_t sink_blocks(const Problem& problem) { return problem.sinks ? problem.num_heads_q : 0; }

BwdWork bwd_work(const LaunchWork& work) {
  return bwd_work(work.problem(), *work.assembly.kernel.gradients, work.begin_of(gradients_part));
}

BwdWork bwd_work(const Problem& problem, const BwdSteps& steps, std::size_t begin) {
  const std::int64_t rows = padded_rows(problem, steps.block_m);
  const std::size_t of_rows = scratch_aligned(static_cast<std::size_t>(all_heads(problem) * rows) *
                                              sizeof(float));
  BwdWork work{.steps = steps};
  work.rows_padded = static_cast<int>(rows);
  work.lse_log2 = begin;
  work.delta = work.lse_log2 + of_rows;
  work.turns = work.delta + of_rows + scratch_aligned(list_bytes(problem, steps));
  // What is zeros before the kernel: turns, counters, the part of dk and dv that shares add to, and
  // of the sums of dq the first or all.
  const auto tiles = static_cast<std::size_t>(all_heads(problem) * (rows / steps.block_m));
  work.counters = work.turns + scratch_aligned(tiles * steps.turns * sizeof(int));
  work.added = work.counters +
               scratch_aligned(static_cast<std::size_t>(steps.counters) * sizeof(int));
  const std::int64_t counted = steps.parts_of_head != 0 ? kv_heads(problem) : 0;
  work.dkv_sums = work.added + scratch_aligned(static_cast<std::size_t>(counted) * sizeof(int));
  const auto [dk, dv] = GroupPartBytes::of(problem, steps);
  work.dq_sums = work.dkv_sums + (steps.adds_parts ? dk + dv : 0);
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
  static_assert(sizeof(BwdScratch) == 3 * sizeof(void*) + 2 * sizeof(int));
  argument.scratch(work.lse_log2).scratch(work.delta).scratch(work.dq_sums);
  argument.value(work.rows_padded, work.steps.dq_columns);
}

int heads_of_group(double wanted, int heads) {
  constexpr double kFewer = 0.75, kMore = 1.25;
  if (wanted >= heads) return std::max(heads, 1);
  int best = std::max(1, static_cast<int>(wanted));
  if (wanted < 1) return best;
  const auto share = [&](int count) { return double((heads - 1) % count + 1) / count; };
  const int groups = static_cast<int>(heads / wanted);
  for (int more = -1; more <= 2; ++more) {
    const int count = ceil_div(heads, std::max(1, groups + more));
    if (count < kFewer * wanted || count > kMore * wanted) continue;
    if (share(count) > share(best)) best = count;
  }
  return best;
}

TileOrder key_tile_order(const Problem& problem, int block_n, int head_group_mb, int group_splits) {
  const StoredRows stored = stored_rows(problem);
  const GroupShares shares = GroupShares::of(problem, group_splits);
  const double heads = double(kv_heads(problem)) * shares.count;
  const double bytes = double(problem.seqlen_q) * shares.heads *
                       (bytes_of(problem.dtype_q, double(problem.head_dim)) +
                        bytes_of(problem.dtype_o, double(problem.head_dim_v)) +
                        problem.head_dim * 4.0);
  const double wanted = double(head_group_mb) * 1048576 / std::max(bytes, 1.0);
  return {.m_blocks = static_cast<int>(tiles_of_stored(problem, stored.kv, block_n)),
          .heads = static_cast<int>(heads),
          .heads_per_group = heads_of_group(wanted, static_cast<int>(heads)),
          .heavy_last = 0};
}

double bwd_steps_us(const Problem& problem, const BwdSteps& steps, const DeviceFacts& device) {
  constexpr double kStepUs = 2.5;  // a launch that overlaps
  const double rows = static_cast<double>(all_heads(problem) * problem.seqlen_q);
  double bytes = rows * (bytes_of(problem.dtype_o, 2.0 * problem.head_dim_v) + 16);
  double us = kStepUs;
  if (steps.dq_columns != 0) {
    bytes += static_cast<double>(zero_sums_bytes(problem, steps));
    bytes += static_cast<double>(sums_bytes(problem, steps, all_heads(problem)));  // read again
    bytes += bytes_of(gradient_dtype(problem, problem.dtype_q), rows * problem.head_dim);
    us += kStepUs;
  }
  if (problem.sinks) us += kStepUs;
  if (steps.group_splits > 1) {
    // Zeros, sums and reads of one part. Several are written and read, and the L2 has no place for
    // them beside what the kernel shares.
    const auto [dk, dv] = GroupPartBytes::of(problem, steps);
    bytes += 3.0 * static_cast<double>(dk + dv);
    us += kStepUs;
  }
  const double bytes_per_us = peak_bytes_per_us(device);
  return us + bytes / std::max(bytes_per_us, 1.0);
}

}  // namespace attnforge
