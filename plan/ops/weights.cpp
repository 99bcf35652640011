#include "attnforge/weights.h"

#include <fmt/format.h>

#include <string>

#include "attnforge/error.h"
#include "generator/parts/part.h"
#include "generator/problem/bucket.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"
#include "plan/checks/input_check.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/ops/op_kernels.h"
#include "runtime/bind_arguments.h"
#include "templates/ops/weights/host.h"

namespace attnforge {
namespace {

void check_inputs(const Problem& p, const Tensors& tensors) {
  const StoredRows stored = stored_rows_of_run(p, tensors);
  check_tensor("q", tensors.q, p.dtype_q, p.num_heads_q, stored.batch, p.seqlen_q, p);
  check_tensor("k", tensors.k, p.dtype_k, p.num_heads_kv, stored.kv_batch,
               stored.pool ? stored.kv : p.seqlen_kv, p);
  if (p.seqlen_q > 0)
    check_address("lse", tensors.lse.data, alignof(float),
                  "but weights are relative to it; give it that of the forward run");
  for_each_part<&ProblemPart::explain>(p, p, tensors);
}

/// `name`: of what is written, which there is a part of.
void run(const Problem& given, const Tensors& tensors, WeightsOf what, std::string_view name,
         const WeightsMemory& memory, Device& device, void* stream, bool allow_compile) {
  const Problem p = weights_problem(given);
  check_inputs(p, tensors);
  check_address(name, memory.to, alignof(float), "give it device memory for its output");
  check_alignment("rows", memory.rows, alignof(int));
  if (memory.num_rows > kMaxGridX || weights_blocks(p, what, memory.num_rows) > double(kMaxGridX))
    refuse_tensors("{} of \"{}\" with {} rows need more thread blocks than a grid can have", name,
                   to_string(given), memory.num_rows);
  DeviceState& state = state_of(device);
  const ContextScope scope(state.context);
  const Problem of_bucket = bucket(p);
  const LoadedKernels& kernels = op_kernels(
      fmt::format("{} {}", name, to_string(of_bucket)), "computes attention weights", allow_compile,
      state, [&] { return weights_source(of_bucket, what); },
      [&] { return Launch{.steps = {weights_step(of_bucket, what, {.num_rows = 1})}}; });
  const auto queue = static_cast<CUstream>(stream);
  if (state.overrides.check_inputs && !is_captured(queue)) check_run_arrays(p, tensors, queue);
  LaunchStep step = weights_step(p, what, memory);
  bind_arguments(step.args, {}, tensors, {}, step.params);
  kernels.at(step.kernel).launch(step, step.params, queue);
}

void require_weights(const Problem& problem, const char* name) {
  validate(problem);
  if (const std::string no = without_weights(problem); !no.empty())
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} of \"{}\": {}", name, to_string(problem), no));
}

}  // namespace

void attention_weights(const Problem& problem, const Tensors& tensors, const WeightRows& rows,
                       const Tensor& weights, Device& device, void* stream, bool allow_compile) {
  require_weights(problem, "attention_weights");
  if (rows.count < 0)
    refuse_tensors("attention_weights got {} rows; give 0 or more of them", rows.count);
  if (problem.batch == 0 || problem.seqlen_kv == 0 || rows.count == 0) return;
  run(problem, tensors, WeightsOf::kRows, "weights",
      {.rows = rows.queries,
       .num_rows = rows.count,
       .to = static_cast<float*>(weights.data),
       .stride_batch = weights.stride_batch,
       .stride_head = weights.stride_head,
       .stride_row = weights.stride_row},
      device, stream, allow_compile);
}

void key_mass(const Problem& problem, const Tensors& tensors, const Rows& mass, Device& device,
              void* stream, bool allow_compile) {
  require_weights(problem, "key_mass");
  if (problem.batch == 0 || problem.seqlen_kv == 0) return;
  run(problem, tensors, WeightsOf::kQueries, "mass",
      {.to = mass.data, .stride_batch = mass.stride_batch, .stride_head = mass.stride_head}, device,
      stream, allow_compile);
}

}  // namespace attnforge
