// host.cpp - what blocks that share the query heads of their keys add to a backward kernel: parts
// of dk and dv in the workspace, and a step that adds them up.
#include <fmt/format.h>

#include "generator/tensors/stored_rows.h"
#include "templates/backward/host.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/parts/group_splits/params.h"

namespace attnforge {

extern const Part group_splits_part;

namespace {

constexpr const char* kPartsKernel = "bwd_dkv";
constexpr int kRowsOfBlock = 16;  // BwdDkv::kRows

std::int64_t stored_kv_heads(const Problem& problem) {
  return stored_rows(problem).batch * problem.num_heads_kv;
}

/// Of dk, and of dv, of a K/V head.
int gradient_parts(const Problem& problem, const BwdSteps& steps) {
  return steps.adds_parts ? 1 : GroupShares::of(problem, steps.group_splits).count;
}

Step::Text text(Entry& entry, const Assembly&) {
  entry.pieces.include("parts/group_splits/step_dkv.cuh");
  const std::string type = "BwdDkv<kConfig, Pieces::Lengths>";
  return {.threads = kBwdStepThreads,
          .type = type,
          .declarations = fmt::format("static_assert({}::kRows == {});\n", type, kRowsOfBlock)};
}

LaunchStep launch(const LaunchWork& work) {
  const Problem& problem = work.problem();
  const std::int64_t tiles = tiles_of_stored(problem, stored_rows(problem).kv, kRowsOfBlock);
  return bwd_step(kPartsKernel, tiles * stored_kv_heads(problem));
}

constexpr Step kAddsUp{.kernel = kPartsKernel, .after = true, .text = text, .launch = launch};

void add(Argument& argument, const LaunchWork& work) {
  const Problem& problem = work.problem();
  const BwdSteps& steps = *work.assembly.kernel.gradients;
  const GroupShares shares = GroupShares::of(problem, steps.group_splits);
  const std::size_t dk = steps.adds_parts ? bwd_work(work).dkv_sums
                                          : work.begin_of(group_splits_part);
  argument.scratch(dk).scratch(dk + GroupPartBytes::of(problem, steps).dk);
  argument.value(shares.heads, shares.count,
                 has_rows(problem) ? gradient_parts(problem, steps) : 0);
  argument.value(static_cast<int>(stored_rows(problem).kv), GroupSplitParams{}.unused);
}

std::size_t scratch(const LaunchWork& work) {
  const BwdSteps& steps = *work.assembly.kernel.gradients;
  if (steps.adds_parts) return 0;  // bwd_rows sets it to zeros, with what else is to be
  const auto [dk, dv] = GroupPartBytes::of(work.problem(), steps);
  return dk + dv;
}

}  // namespace

GroupShares GroupShares::of(const Problem& problem, int splits) {
  const auto group = static_cast<int>(gqa_group(problem));
  const int heads = ceil_div(group, splits);
  return {heads, ceil_div(group, heads)};
}

GroupPartBytes GroupPartBytes::of(const Problem& problem, const BwdSteps& steps) {
  if (steps.group_splits == 1) return {0, 0};
  const std::int64_t rows = stored_kv_heads(problem) * gradient_parts(problem, steps) *
                            stored_rows(problem).kv;
  const auto bytes = [rows](std::int64_t columns) {
    return scratch_aligned(static_cast<std::size_t>(rows * columns) * sizeof(float));
  };
  return {bytes(problem.head_dim), bytes(problem.head_dim_v)};
}

constinit const Part group_splits_part{
    .name = "group_splits",
    .in =
        [](const Assembly& a) {
          return a.kernel.gradients != nullptr && a.kernel.gradients->group_splits > 1;
        },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithGroupSplits<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(GroupSplitParams); },
    .add = add,
    .fill = [](Entry& entry,
               const Assembly&) { entry.pieces.include("parts/group_splits/params.h"); },
    .steps = {&kAddsUp, 1},
    .scratch = scratch};

}  // namespace attnforge
