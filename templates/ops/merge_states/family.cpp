// family.cpp - merge_states as a Family: a kernel that takes all sizes when it runs.
#include <fmt/format.h>

#include <utility>
#include <vector>

#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/host/argument.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/memory_time.h"
#include "templates/ops/merge_states/config.h"

namespace attnforge {
namespace {

using Typed = MergeStatesConfig;
constexpr std::string_view kName = "merge_states";
static_assert(kMostStates == kMostMergedStates);

constexpr Field<Typed> kFields[] = {{"row_warps", &Typed::row_warps, doubled(1, 8)}};

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = below_sm80(arch)) return no.text();
  return too_many_blocks(double(problem.batch) * double(problem.num_heads_q) *
                         double(problem.seqlen_q))
      .text();
}

std::vector<Axis> axes(const Problem&, const DeviceFacts&) { return {{"row_warps", {1, 2, 4, 8}}}; }

Reason illegal(const Typed& c, const Problem&, const DeviceFacts& device) {
  return too_much_smem(c.smem_bytes(), device.arch);
}

/// Nearest is best: a warp has about four parts.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kLaunchUs = 2, kOfAnother = 0.1;
  const int usual = MergeShape::of(problem.parts).warps;
  const double off = c.row_warps > usual ? double(c.row_warps) / usual
                                         : double(usual) / c.row_warps;
  return (kLaunchUs + memory_us(problem, device)) * (1 + kOfAnother * (off - 1));
}

std::string describe(const Typed& c) {
  return fmt::format("{} warp{} for each row", c.row_warps, c.row_warps == 1 ? "" : "s");
}

KernelTraits kernel_of(const Typed& c) {
  return {.symbol = fmt::format("{}_{}_{}_d{}", kName, to_string(static_cast<DType>(c.dtype)),
                                to_string(static_cast<DType>(c.dtype_o)), c.head_dim),
          .folder = "ops/merge_states",
          .type = "MergeStates",
          .params = OwnParams::of<MergeParams>("MergeParams"),
          .blocks_per_sm = "blocks_per_sm()",
          .launch_fields = 1};
}

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

StateRef reference_to(const Tensor& o, const Rows& lse) {
  return {{o.data, o.stride_batch, o.stride_row, o.stride_head},
          lse.data,
          lse.stride_batch,
          lse.stride_head};
}

void bind_states(MergeParams& p, const Tensors& tensors, const RunMemory&) {
  for (int i = 0; i < p.count; ++i)
    p.parts[i] = reference_to(tensors.parts[i].o, tensors.parts[i].lse);
  p.result = reference_to(tensors.o, tensors.lse);
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts&) {
  const std::int64_t rows = problem.batch * problem.num_heads_q * problem.seqlen_q;
  if (rows == 0) return {};
  const int rows_of_block = MergeShape{c.row_warps}.rows();
  LaunchStep step = step_of(kernel_of(c).symbol, Typed::num_threads(), c.smem_bytes(),
                            (rows + rows_of_block - 1) / rows_of_block);
  MergeParams params{};
  params.count = problem.parts;
  params.batch = static_cast<int>(problem.batch);
  params.num_heads = static_cast<int>(problem.num_heads_q);
  params.seqlen = static_cast<int>(problem.seqlen_q);
  params.row_warps = c.row_warps;
  Argument::of<MergeParams>(step).own<bind_states>(params).done();
  return {.steps = {std::move(step)}};
}

}  // namespace

extern const Family merge_states_family;
constinit const Family merge_states_family = typed_family<kFields, illegal, never_needless<Typed>,
                                                          estimate_us, render, launch, describe>({
    .name = kName,
    .summary = "one softmax over the keys of several parts: a row for 1 to 8 warps, which read "
               "each part once",
    .op = Op::kMerge,
    .features = kFeatureLse | kFeatureUnaligned | kFeatureMixedDtypes,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
