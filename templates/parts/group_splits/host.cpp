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

/// Bytes of all parts of a gradient.
std::size_t parts_bytes(const Problem& problem, int splits, std::int64_t columns) {
  const std::int64_t parts = stored_kv_heads(problem) * GroupShares::of(problem, splits).count;
  return static_cast<std::size_t>(parts * stored_rows(problem).kv * columns) * sizeof(float);
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
  const int splits = work.assembly.kernel.gradients->group_splits;
  const GroupShares shares = GroupShares::of(problem, splits);
  const std::size_t dk = work.begin_of(group_splits_part),
                    dv = dk + scratch_aligned(parts_bytes(problem, splits, problem.head_dim));
  argument.scratch(dk).scratch(dv);
  argument.value(shares.heads, shares.count, static_cast<int>(stored_rows(problem).kv));
  argument.value(GroupSplitParams{}.unused);
}

std::size_t scratch(const LaunchWork& work) {
  return group_parts_bytes(work.problem(), work.assembly.kernel.gradients->group_splits);
}

}  // namespace

GroupShares GroupShares::of(const Problem& problem, int splits) {
  const auto group = static_cast<int>(gqa_group(problem));
  const int heads = ceil_div(group, splits);
  return {heads, ceil_div(group, heads)};
}

std::size_t group_parts_bytes(const Problem& problem, int splits) {
  return scratch_aligned(parts_bytes(problem, splits, problem.head_dim)) +
         scratch_aligned(parts_bytes(problem, splits, problem.head_dim_v));
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
