#include "templates/parts/widening/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/problem/bucket.h"
#include "generator/shape.h"
#include "templates/embedded.h"
#include "templates/host/argument.h"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/parts/pages/host.h"
#include "templates/parts/widening/params.h"

namespace attnforge {
namespace {

using Operand = TensorMapSpec::Operand;

constexpr const char* kWidenKernel = "widen_k_and_v";
constexpr int kOwnPageRows = 128;
constexpr int kMostBlockKeys = 256, kLeastBlockKeys = 32;

bool has_own_pages(const Problem& p) { return has_pages(p) && p.lengths == Lengths::kPacked; }

std::int64_t own_pages_of_sequence(const Problem& p) {
  return has_own_pages(p) ? (p.seqlen_kv + kOwnPageRows - 1) / kOwnPageRows : 0;
}
/// Rows from a sequence to the next one.
std::int64_t rows_of_sequence(const Problem& p) {
  return has_own_pages(p) ? own_pages_of_sequence(p) * kOwnPageRows : p.seqlen_kv;
}
std::int64_t rows_of_all(const Problem& p) {
  return has_packed_keys(p) ? total_tokens(p).kv : p.batch * rows_of_sequence(p);
}

/// k or v in the workspace: contiguous [rows_of_all, heads, dim].
struct Wide {
  Operand operand;
  bool there;  // else it is the run's, which has 16 bits
  DType from, to;
  std::int64_t rows, heads;
  int dim;

  std::int64_t elements() const { return there ? rows * heads * dim : 0; }
  std::size_t bytes() const {
    return scratch_aligned(static_cast<std::size_t>(bytes_of(to, elements())));
  }
  double moved_bytes() const {
    return double(elements()) * (format_of(from).bits + format_of(to).bits) / 8;
  }
  ScratchTensor at(std::size_t begin, std::int64_t rows_of_batch) const {
    return {operand, begin, rows_of_batch * heads * dim, heads * dim, dim};
  }
};
Wide wide(const Problem& p, bool of_v) {
  const DType from = of_v ? p.dtype_v : p.dtype_k;
  return {.operand = of_v ? Operand::kV : Operand::kK,
          .there = is_low_bit(from) || has_pages(p),
          .from = from,
          .to = p.dtype_q,
          .rows = rows_of_all(p),
          .heads = p.num_heads_kv,
          .dim = of_v ? p.head_dim_v : p.head_dim};
}

std::int64_t blocks_of_sequence(const Problem& p, int block_keys) {
  return (p.seqlen_kv + block_keys - 1) / block_keys;
}

/// Fewer keys a block until there are as many blocks as a GPU holds.
int block_keys(const Problem& p, const DeviceFacts& device) {
  constexpr int kBlocksOfSm = 8;
  int keys = kMostBlockKeys;
  while (keys > kLeastBlockKeys &&
         p.batch * blocks_of_sequence(p, keys) < std::int64_t{kBlocksOfSm} * device.num_sms)
    keys /= 2;
  return keys;
}

void bind_widening(WideningWork& w, const Tensors& t, const RunMemory&) {
  const auto reference = [](const auto& of) {
    return TensorRef{of.data, of.stride_batch, of.stride_row, of.stride_head};
  };
  w.k = reference(t.k), w.v = reference(t.v);
  w.k_scale = reference(t.k_scale), w.v_scale = reference(t.v_scale);
  w.lengths = t.lengths.kv;
  w.table = t.pages.table;
  w.table_stride = t.pages.stride_batch;
  w.num_pages = static_cast<int>(t.pages.num_pages);
}

LaunchStep widening_step(const Problem& problem, const DeviceFacts& device, std::size_t k_begin,
                         std::size_t v_begin, const OwnPages& pages) {
  WideningWork work{};
  work.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  work.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  work.block_keys = block_keys(problem, device);
  work.blocks = static_cast<int>(blocks_of_sequence(problem, work.block_keys));
  work.rows = static_cast<int>(rows_of_sequence(problem));
  work.own_pages = static_cast<int>(pages.of_sequence);
  LaunchStep step = step_of(kWidenKernel, WideningWork::kThreads, 0, problem.batch * work.blocks);
  Argument::of<WideningParams>(step)
      .own<bind_widening>(work)
      .scratch(k_begin, wide(problem, false).there)
      .scratch(v_begin, wide(problem, true).there)
      .scratch(pages.table, pages.count != 0)
      .done();
  return step;
}

}  // namespace

bool widens(const Problem& problem) {
  return has_low_bit_kv(problem) && !is_low_bit(problem.dtype_q);
}

Problem widened(const Problem& problem) {
  Problem wide = problem;
  wide.dtype_k = wide.dtype_v = problem.dtype_q;
  wide.kv_scale = KvScale::kNone;
  wide.kv_zero = false;
  wide.page_size = has_own_pages(problem) ? kOwnPageRows : 0;
  return wide;
}

std::string not_to_widen(const Problem& problem) {
  constexpr std::int64_t kFewQueries = 16, kFewRows = 128, kMostBlocks = 1 << 30;
  // As its bucket has them, whose config all of its problems take.
  const std::int64_t rows = bucket_seqlen(problem.seqlen_q) * gqa_group(problem);
  if (problem.seqlen_q <= kFewQueries && rows <= kFewRows)
    return fmt::format(
        "widens what more than {} queries, or {} rows of their heads, read: not {} rows",
        kFewQueries, kFewRows, rows);
  if (is_blocks(problem.dtype_k) || is_blocks(problem.dtype_v))
    return "widens numbers with scales beside them, not blocks that have them inside";
  // A batch too large for it would be served by a kernel of other roundings.
  if (problem.batch_invariant)
    return "widens k and v of a batch of known size, not batch_invariant";
  if (problem.batch * blocks_of_sequence(problem, kLeastBlockKeys) <= kMostBlocks) return "";
  return "widens no more than 2^30 blocks of 32 keys";
}

Reason too_much_to_widen(const Problem& problem, const DeviceFacts& device) {
  constexpr std::int64_t kShare = 16;
  const std::size_t bytes = wide(problem, false).bytes() + wide(problem, true).bytes();
  if (static_cast<std::int64_t>(bytes) <= device.memory_bytes / kShare) return "";
  return Reason("k and v in 16 bits take {} MB, more than one {}th of the GPU's memory",
                static_cast<std::int64_t>(bytes) >> 20, kShare);
}

double widening_us(const Problem& problem, const DeviceFacts& device) {
  constexpr double kLaunchUs = 3, kReached = 0.85;  // of the peak
  const double bytes = wide(problem, false).moved_bytes() + wide(problem, true).moved_bytes();
  const double bytes_per_us = peak_bytes_per_us(device) * kReached;
  return kLaunchUs + bytes / std::max(bytes_per_us, 1.0);
}

Source with_widening(Source source, const Problem& problem) {
  source.entry += fmt::format(
      "#include \"parts/widening/step_widen.cuh\"\n"
      "static_assert(sizeof(WideningParams) == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ WideningParams p) {{\n"
      "  WidenKeys<Shape{}>::run(p);\n"
      "}}\n",
      sizeof(WideningParams), WideningWork::kThreads, kWidenKernel, initializer(shape_of(problem)));
  source.assembly.steps.insert(source.assembly.steps.begin(), {kWidenKernel, "low_bits", false});
  flatten(source, embedded_headers());
  return source;
}

Launch with_widening(Launch launch, const Problem& problem, const DeviceFacts& device) {
  if (launch.steps.empty() || problem.seqlen_kv == 0) return launch;
  const Wide k = wide(problem, false), v = wide(problem, true);
  const std::size_t k_begin = scratch_aligned(launch.workspace_bytes),
                    v_begin = k_begin + k.bytes();
  const OwnPages pages{.table = v_begin + v.bytes(),
                       .of_sequence = own_pages_of_sequence(problem),
                       .count = problem.batch * own_pages_of_sequence(problem)};
  launch.workspace_bytes = pages.table + static_cast<std::size_t>(pages.count) * sizeof(int);
  const std::int64_t rows = pages.count == 0 ? rows_of_sequence(problem) : kOwnPageRows;
  for (LaunchStep& step : launch.steps) {
    if (k.there) step.from_workspace.push_back(k.at(k_begin, rows));
    if (v.there) step.from_workspace.push_back(v.at(v_begin, rows));
    if (pages.count != 0) read_own_pages(step, pages);
  }
  launch.steps.insert(launch.steps.begin(),
                      widening_step(problem, device, k_begin, v_begin, pages));
  return launch;
}

}  // namespace attnforge
