// family.cpp - append_kv as a Family: a kernel that takes all sizes when it runs, and how its work
// is shared out.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "generator/family.h"
#include "generator/shape.h"
#include "generator/typed_family.h"
#include "templates/host/argument.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/memory_time.h"
#include "templates/ops/append_kv/config.h"
#include "templates/ops/append_kv/work.h"

namespace attnforge {

AppendWork append_work(const AppendShape& shape, std::int64_t tokens, int heads_kv, int heads_q,
                       int num_sms) {
  const std::int64_t warps_at_once = std::int64_t{std::max(num_sms, 1)} * shape.blocks_of_sm()
                                     << AppendShape::kWarpsLog2;
  AppendWork work{};
  for (;; ++work.depth_log2) {
    int end = 0;
    for (const int moved : {kMovedK, kMovedV, kMovedQ}) {
      end += shape.strips(moved, moved == kMovedQ ? heads_q : heads_kv, work.depth_log2);
      work.strips_end[moved] = end;
    }
    const bool at_once = end <= 1 << AppendShape::kWarpsLog2 && tokens * end <= warps_at_once;
    if (at_once || work.depth_log2 == shape.most_depth_log2()) break;
  }
  // A GPU that is filled once and a bit would be nearly empty at the end: it had better be filled
  // several times, with less work each.
  const auto more_help = [&](std::int64_t warps) {
    return 2 * warps <= warps_at_once || (warps > warps_at_once && warps < 4 * warps_at_once);
  };
  while (work.warps_log2 < AppendShape::kWarpsLog2 &&
         1 << work.warps_log2 < work.strips_end[kMovedQ] && more_help(tokens << work.warps_log2))
    ++work.warps_log2;
  work.blocks = static_cast<u32>(
      std::max<std::int64_t>(1, (tokens + work.tokens_of_block() - 1) / work.tokens_of_block()));
  return work;
}

bool counts_blocks(const AppendArgument& p) {
  return p.planned.lengths_after && (p.planned.packed || p.tokens == 0 || p.seqlen_new != 1);
}

unsigned append_grid(std::uint32_t blocks) { return std::min(blocks, 8192u); }

namespace {

using Typed = AppendRowsConfig;
constexpr std::string_view kName = "append_kv";
static_assert(sizeof(AppendCounters) == kCounterBytes &&
              offsetof(AppendCounters, runs) == kRunsCounter * sizeof(u32));

constexpr Field<Typed> kFields[] = {{"blocks_per_sm", &Typed::blocks_per_sm, from_to(2, 6)}};

std::string supports(const Problem& problem, const Arch& arch) {
  Typed c{};
  static_cast<Shape&>(c) = shape_of(problem);
  if (!c.append_shape().rows_fit())
    return fmt::format(
        "quantises rows of up to 256 elements where rope_dim={} is no multiple of 16: a warp has "
        "one to itself",
        c.rope_dim);
  return below_sm80(arch).text();
}

std::vector<Axis> axes(const Problem&, const DeviceFacts&) {
  return {{"blocks_per_sm", {3, 4, 5}}};
}

Reason illegal(const Typed&, const Problem&, const DeviceFacts&) { return ""; }

/// What hides the waits for lengths and pages is many warps; a rotation takes more registers.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kLaunchUs = 2, kOfAnother = 0.1;
  const int off = std::abs(c.blocks_per_sm - c.append_shape().blocks_of_sm());
  return (kLaunchUs + memory_us(problem, device)) * (1 + kOfAnother * off);
}

std::string describe(const Typed& c) { return fmt::format("{} blocks per SM", c.blocks_per_sm); }

KernelTraits kernel_of(const Typed& c) {
  const auto rope = static_cast<Rope>(c.rope);
  const std::string turns = rope == Rope::kNone ? ""
                                                : fmt::format("_{}{}", to_string(rope), c.rope_dim);
  const auto name_of = [](int dtype) { return to_string(static_cast<DType>(dtype)); };
  const std::string caches = c.append_shape().quantises()
                                 ? fmt::format("_{}_{}", name_of(c.dtype_k), name_of(c.dtype_v))
                                 : "";
  return {.symbol = fmt::format("{}_{}_d{}_{}{}{}", kName, name_of(c.dtype), c.head_dim,
                                c.head_dim_v, turns, caches),
          .folder = "ops/append_kv",
          .type = "AppendRows",
          .params = OwnParams::of<AppendParams>("AppendParams")};
}

/// Pages and packed rows are told when the kernel runs.
Source render(const Typed& config, const Problem& problem) {
  Typed c = config;
  c.lengths = kFixedLengths;
  c.page_size = 0;
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

void bind_rows(AppendArgument& p, const Tensors& t, const RunMemory&) {
  const auto reference = [&](const Tensor& tensor, bool of_rows) {
    const std::int64_t batch = of_rows && p.planned.packed ? 0 : tensor.stride_batch;
    return TensorRef{tensor.data, batch, tensor.stride_row, tensor.stride_head};
  };
  p.from[kMovedK] = reference(t.k, true);
  p.from[kMovedV] = reference(t.v, true);
  p.to[kMovedK] = reference(t.cache.k, false);
  p.to[kMovedV] = reference(t.cache.v, false);
  if (p.num_heads_q > 0) {
    p.from[kMovedQ] = reference(t.q, true);
    p.to[kMovedQ] = reference(t.o, true);
  }
  if (p.planned.packed) p.cu_seqlens = t.lengths.q;
  if (p.planned.packed && p.tokens > 0 && t.lengths.tokens_q > 0)
    p.tokens = static_cast<int>(t.lengths.tokens_q);
  p.used = t.lengths.kv;
  if (p.planned.lengths_after) p.used_after = t.cache.lengths_after;
  if (p.page_size > 0) {
    p.table = t.pages.table;
    p.table_stride = t.pages.stride_batch;
    p.num_pages = static_cast<int>(t.pages.num_pages);
  }
  if (p.planned.pairs > 0) {
    p.cos = t.rope.cos + t.rope.offset * p.planned.pairs;
    p.sin = t.rope.sin + t.rope.offset * p.planned.pairs;
  }
}

struct ScaleRefs {
  TensorRef of[2];
};
void bind_scales(ScaleRefs& scales, const Tensors& t, const RunMemory&) {
  const auto reference = [](const ScaleTensor& of) {
    return TensorRef{of.data, of.stride_batch, of.stride_row, of.stride_head};
  };
  scales = {{reference(t.k_scale), reference(t.v_scale)}};
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const std::int64_t tokens = problem.seqlen_kv == 0 ? 0 : total_tokens(problem).q;
  if (problem.batch == 0 || (tokens == 0 && !problem.lengths_after)) return {};
  AppendArgument p{};
  p.planned = {.pairs = c.rope_dim / 2,
               .packed = problem.lengths == Lengths::kPacked,
               .lengths_after = problem.lengths_after};
  p.batch = static_cast<int>(problem.batch);
  p.tokens = static_cast<int>(tokens);
  p.seqlen_new = p.planned.packed ? 0 : static_cast<int>(problem.seqlen_q);
  p.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  p.page_size = problem.page_size;
  p.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  p.num_heads_q = problem.queries ? static_cast<int>(problem.num_heads_q) : 0;
  p.work = append_work(c.append_shape(), tokens, p.num_heads_kv, p.num_heads_q, device.num_sms);
  const bool counts = counts_blocks(p);
  LaunchStep step = step_of(kernel_of(c).symbol,
                            counts ? AppendShape::kMostThreads : AppendShape::kThreads, 0);
  step.grid.x = append_grid(p.work.blocks);
  Argument argument = Argument::of<AppendParams>(step);
  argument.own<bind_rows>(p);
  counts ? argument.counters() : argument.value(static_cast<void*>(nullptr));
  if (problem.kv_scale != KvScale::kNone)
    argument.own<bind_scales>(ScaleRefs{});
  else
    argument.value(ScaleRefs{});
  argument.done();
  return {.steps = {std::move(step)}};
}

}  // namespace

extern const Family append_kv_family;
constinit const Family append_kv_family = typed_family<kFields, illegal, never_needless<Typed>,
                                                       estimate_us, render, launch, describe>({
    .name = kName,
    .summary = "new rows of k and v to caches, rotated by their positions and quantised: a warp "
               "moves rows of several heads of one token",
    .op = Op::kAppend,
    .features = kFeatureGqa | kFeatureUnequalHeadDims | kFeatureUnaligned | kFeatureRope |
                kFeatureLengths | kFeaturePages | kFeatureLowBits,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
