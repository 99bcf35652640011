#include "templates/parts/rope/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/shape.h"
#include "templates/embedded.h"
#include "templates/host/assembly.h"
#include "templates/host/fwd_params.h"
#include "templates/host/launch_work.h"
#include "templates/host/memory_time.h"

namespace attnforge {

extern const Part rotation_part;

namespace {

using Operand = TensorMapSpec::Operand;

constexpr const char* kKernel = "rotate_q_and_k";

/// q or k in the workspace: contiguous [batch, seqlen, heads, head_dim].
struct Rotated {
  Operand operand;
  std::int64_t batch, seqlen, heads;
  int head_dim;
  DType dtype;

  std::int64_t rows() const { return batch * seqlen * heads; }
  std::size_t bytes() const {
    return scratch_aligned(static_cast<std::size_t>(bytes_of(dtype, rows() * head_dim)));
  }
  ScratchTensor at(std::size_t begin) const {
    return {operand, begin, seqlen * heads * head_dim, heads * head_dim, head_dim};
  }
};

Rotated rotated_q(const Problem& p) {
  return {Operand::kQ, p.batch, p.seqlen_q, p.num_heads_q, p.head_dim, p.dtype_q};
}
Rotated rotated_k(const Problem& p) {
  return {Operand::kK, p.batch, p.seqlen_kv, p.num_heads_kv, p.head_dim, p.dtype_k};
}

RotationWork work_of(const Problem& problem) {
  const Shape shape = shape_of(problem);
  return {.dtype = shape.dtype, .head_dim = shape.head_dim, .rope_dim = shape.rope_dim};
}

/// Threads of the step count them in 32 bits.
std::int64_t groups_of_heads(const Rotated& tensor) {
  return tensor.batch * tensor.seqlen *
         ((tensor.heads + RotationWork::kHeads - 1) / RotationWork::kHeads);
}

std::int64_t blocks_of(const Rotated& tensor, const RotationWork& work) {
  return (groups_of_heads(tensor) + work.tokens() - 1) / work.tokens();
}

std::int64_t blocks_of(const Problem& problem) {
  const RotationWork work = work_of(problem);
  return blocks_of(rotated_q(problem), work) + blocks_of(rotated_k(problem), work);
}

LaunchStep rotation_step(const Problem& problem, std::size_t q_begin, std::size_t k_begin) {
  LaunchStep step = step_of(kKernel, RotationWork::kThreads, 0, blocks_of(problem));
  const std::int64_t q_blocks = blocks_of(rotated_q(problem), work_of(problem));
  Argument argument = Argument::of<RotationParams>(step);
  add_rope(argument.fwd(problem), problem).scratch(q_begin).scratch(k_begin);
  argument.value(static_cast<int>(q_blocks)).done();
  return step;
}

}  // namespace

Problem without_rope(const Problem& problem) {
  Problem plain = problem;
  plain.rope = Rope::kNone;
  plain.rope_dim = 0;
  return plain;
}

void bind_rope(RopeParams& rope, const Tensors& tensors, const RunMemory&) {
  rope.cos = tensors.rope.cos;
  rope.sin = tensors.rope.sin;
  rope.q_offset = static_cast<int>(tensors.rope.offset + rope.q_offset);
  rope.k_offset = static_cast<int>(tensors.rope.offset);
}

namespace {

RopeParams rope_params(const Problem& problem) {
  return {.cos = nullptr,
          .sin = nullptr,
          .q_offset = static_cast<int>(problem.seqlen_kv - problem.seqlen_q),
          .k_offset = 0};
}

}  // namespace

Argument& add_rope(Argument& argument, const Problem& problem) {
  if (plain(problem)) return argument.value(RopeParams{});
  return argument.own<bind_rope>(rope_params(problem));
}

constinit const Part rotation_part{
    .name = "rope",
    .in = [](const Assembly& a) { return !plain(a.problem); },
    .type = [](const Assembly&,
               std::string_view params) { return fmt::format("WithRope<{}>", params); },
    .bytes = [](const Assembly&) { return sizeof(RopeParamsOfPart); },
    .add =
        [](Argument& argument, const LaunchWork& work) {
          argument.field(RopeParamsOfPart{rope_params(work.problem()), {}},
                         own_argument<bind_rope>());
        },
    .fill = [](Entry& entry, const Assembly&) { entry.pieces.include("parts/rope/params.h"); }};

std::string too_much_to_rotate(const Problem& problem) {
  constexpr std::int64_t kMost = 1 << 30;
  const std::int64_t most = std::max(groups_of_heads(rotated_q(problem)),
                                     groups_of_heads(rotated_k(problem)));
  if (most <= kMost) return "";
  return fmt::format("rotating q and k takes {} groups of {} heads of a token, more than 2^30",
                     most, RotationWork::kHeads);
}

double rotation_us(const Problem& problem, const DeviceFacts& device) {
  constexpr double kLaunchUs = 3;
  const double bytes = 2.0 *
                       (double(rotated_q(problem).bytes()) + double(rotated_k(problem).bytes()));
  const double bytes_per_us = peak_bytes_per_us(device);
  return kLaunchUs + bytes / std::max(bytes_per_us, 1.0);
}

Source with_rotation(Source source, const Problem& problem) {
  const RotationWork work = work_of(problem);
  const Shape shape = shape_of(problem);
  source.entry += fmt::format(
      "#include \"parts/rope/step_rotate.cuh\"\n"
      "static_assert(sizeof(RotationParams) == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ RotationParams p) {{\n"
      "  Rotate<RotationWork{{.dtype = {}, .head_dim = {}, .rope_dim = {}}}, {}, {}>::run(p);\n"
      "}}\n",
      sizeof(RotationParams), RotationWork::kThreads, kKernel, work.dtype, work.head_dim,
      work.rope_dim, shape.rope, shape.alignment);
  source.assembly.steps.insert(source.assembly.steps.begin(), {kKernel, "rope", false});
  flatten(source, embedded_headers());
  return source;
}

Launch with_rotation(Launch launch, const Problem& problem) {
  if (launch.steps.empty()) return launch;
  ATTNFORGE_ASSERT(too_much_to_rotate(problem).empty(), "supports() lets no more through");
  const Rotated q = rotated_q(problem), k = rotated_k(problem);
  const std::size_t q_begin = scratch_aligned(launch.workspace_bytes);
  const std::size_t k_begin = q_begin + q.bytes();
  launch.workspace_bytes = k_begin + k.bytes();
  for (LaunchStep& step : launch.steps) step.from_workspace = {q.at(q_begin), k.at(k_begin)};
  launch.steps.insert(launch.steps.begin(), rotation_step(problem, q_begin, k_begin));
  return launch;
}

}  // namespace attnforge
