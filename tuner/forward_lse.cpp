#include "tuner/forward_lse.h"

#include <cstddef>
#include <vector>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "generator/tensors/operands.h"
#include "reference/score.h"
#include "runtime/compile/compiler.h"
#include "runtime/loaded_launch.h"
#include "runtime/memory.h"
#include "templates/registry.h"
#include "tuner/oracle_list.h"

namespace attnforge {

void set_forward_lse(const Problem& problem, const DeviceFacts& device, const Tensors& tensors,
                     CUstream stream) {
  if (knows_score_sizes(problem) || !reads(problem, "lse")) return;
  const Problem forward = forward_of(problem);
  const Family* const family = find_family("fwd_naive");
  ATTNFORGE_ASSERT(family != nullptr, "the registry lists fwd_naive: it is the oracle");
  const std::vector<Candidate> configs = candidates(*family, forward, device);
  ATTNFORGE_ASSERT(!configs.empty(), "fwd_naive serves every problem: it is the oracle");
  const Config& config = configs.front().config;
  const Launch launch = family->launch(config, forward, device);
  if (launch.steps.empty()) return;
  // o is made up already, and stays.
  const auto elements = static_cast<std::size_t>(total_tokens(problem).q * problem.num_heads_q *
                                                 problem.head_dim_v);
  const Buffer o(static_cast<std::size_t>(bytes_of(problem.dtype_o, elements)));
  Tensors of_forward = tensors;
  of_forward.o.data = o.data();
  const Source source = family->render(config, forward);
  const LoadedKernels kernels(compile(source, device.arch).bytes, source, launch);
  LoadedLaunch(launch, kernels).run(of_forward, {}, stream);
  wait_for_oracle(stream, problem);
}

}  // namespace attnforge
