#include "tuner/forward_lse.h"

#include "generator/tensors/operands.h"
#include "reference/score.h"
#include "tuner/oracle_list.h"

namespace attnforge {

void set_forward_lse(const Problem& problem, const DeviceFacts& device, const Tensors& tensors,
                     CUstream stream) {
  if (knows_score_sizes(problem) || !reads(problem, "lse")) return;
  const Problem forward = forward_of(problem);
  const OracleKernel oracle = oracle_kernel("fwd_naive", forward, device);
  const Launch launch = oracle.family->launch(oracle.config, forward, device);
  if (launch.steps.empty()) return;
  // o is made up already, and stays.
  const auto elements = static_cast<std::size_t>(total_tokens(problem).q * problem.num_heads_q *
                                                 problem.head_dim_v);
  const Buffer o(static_cast<std::size_t>(bytes_of(problem.dtype_o, elements)));
  Tensors of_forward = tensors;
  of_forward.o.data = o.data();
  run_oracle(oracle, forward, device, launch, of_forward, stream);
}

}  // namespace attnforge
