#include "tuner/forward_lse.h"

#include "generator/tensors/operands.h"
#include "reference/score.h"

namespace attnforge {

std::optional<OracleKernel> lse_oracle(const Problem& problem, const DeviceFacts& device) {
  if (knows_score_sizes(problem) || !reads(problem, "lse")) return std::nullopt;
  return oracle_kernel("fwd_naive", forward_of(problem), device);
}

void set_forward_lse(const Problem& problem, const DeviceFacts& device, const OwnCode& code,
                     const Tensors& tensors, CUstream stream) {
  const std::optional<OracleKernel> oracle = lse_oracle(problem, device);
  if (!oracle) return;
  const Launch launch = oracle->family->launch(oracle->config, oracle->problem, device);
  if (launch.steps.empty()) return;
  // o is made up already, and stays.
  const auto elements = static_cast<std::size_t>(total_tokens(problem).q * problem.num_heads_q *
                                                 problem.head_dim_v);
  const Buffer o(static_cast<std::size_t>(bytes_of(problem.dtype_o, elements)));
  Tensors of_forward = tensors;
  of_forward.o.data = o.data();
  run_oracle(*oracle, device, code, launch, of_forward, stream);
}

}  // namespace attnforge
