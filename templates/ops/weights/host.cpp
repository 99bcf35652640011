#include "templates/ops/weights/host.h"

#include <fmt/format.h>

#include <utility>

#include "generator/shape.h"
#include "generator/typed_family.h"
#include "templates/host/argument.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/ops/weights/config.h"

namespace attnforge {
namespace {

using Typed = WeightsConfig;
constexpr std::string_view kName = "weights";

constexpr Field<Typed> kFields[] = {{"sums", &Typed::sums, doubled(1, 1)}};
static_assert(lists_every_member(kFields));

Typed config_of(const Problem& problem, WeightsOf what) {
  Typed c{};
  static_cast<Shape&>(c) = without_bounds(shape_of(problem));  // read at run time
  c.sums = what == WeightsOf::kQueries ? 1 : 0;
  return c;
}

KernelTraits kernel_of(const Typed& c) {
  return {.symbol = shape_name(c.sums ? "key_mass" : kName, c, Typed::kRows, Typed::kKeys),
          .folder = "ops/weights",
          .type = "Weights",
          .params = OwnParams::of<WeightsParams>("WeightsParams"),
          .blocks_per_sm = "blocks_per_sm()",
          .pieces = &kOraclePieces};
}

double tiles(std::int64_t rows, int of) { return static_cast<double>((rows + of - 1) / of); }

}  // namespace

std::string without_weights(const Problem& problem) {
  if (problem.op != Op::kForward)
    return fmt::format("weights are those of a forward problem, not of {}", to_string(problem.op));
  if (problem.dtype_q != problem.dtype_k)
    return fmt::format("q is {} and k is {}; weights are of one dtype", to_string(problem.dtype_q),
                       to_string(problem.dtype_k));
  if (is_low_bit(problem.dtype_q))
    return fmt::format("weights are of fp32, fp16 or bf16, not {}", to_string(problem.dtype_q));
  if (problem.rope != Rope::kNone)
    return "weights are of q and k as a rope has rotated them; rotate both first";
  return "";
}

Problem weights_problem(const Problem& problem) {
  Problem p = problem;
  p.dtype_v = p.dtype_o = p.dtype_q;
  p.kv_scale = KvScale::kNone;
  p.kv_zero = false;
  p.head_dim_v = p.head_dim;
  p.layout = Layout::kBshd;
  p.lse = true;     // it comes in
  p.sinks = false;  // lse counts them
  p.tf32 = p.batch_invariant = p.fast_sums = false;
  return p;
}

double weights_blocks(const Problem& p, WeightsOf what, std::int64_t num_rows) {
  return double(p.batch) * double(p.num_heads_q) * tiles(p.seqlen_kv, Typed::kKeys) *
         (what == WeightsOf::kQueries ? 1 : tiles(num_rows, Typed::kRows));
}

Source weights_source(const Problem& problem, WeightsOf what) {
  const Typed c = config_of(problem, what);
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

LaunchStep weights_step(const Problem& problem, WeightsOf what, const WeightsMemory& memory) {
  const Typed c = config_of(problem, what);
  const KernelTraits kernel = kernel_of(c);
  const Assembly assembly = assemble(problem, c, kernel);
  LaunchStep step = step_of(
      symbol_of(assembly), Typed::kThreads, Typed::smem_bytes(),
      static_cast<std::int64_t>(weights_blocks(problem, what, memory.num_rows)));
  fill_argument(step, launch_work(assembly), [&](Argument& argument) {
    argument.fwd(problem).value(memory.rows, static_cast<int>(memory.num_rows), memory.to);
    argument.value(memory.stride_batch, memory.stride_head, memory.stride_row);
  });
  return step;
}

}  // namespace attnforge
