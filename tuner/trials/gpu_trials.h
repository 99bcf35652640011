// gpu_trials.h - trials on the GPU of this process.
#pragma once

#include <memory>
#include <optional>

#include "tuner/trials/trials.h"

namespace attnforge {

struct TrialOptions {
  unsigned seed = 1;                  // of inputs, and of the rows that are compared
  double hang_least_s = 2;            // what a kernel may take however fast the best one is
  std::optional<Problem> asked = {};  // timed too: it is_smaller() than the trials' problem
};

/// For `problem` on `device`, whose context must be current on the calling thread here and in every
/// call, destruction included. Costs nothing until get_ready(): that allocates the tensors, twice
/// the L2 and the oracle's outputs, and throws Error(kCuda) when memory is short. A kernel that
/// does not end is given up (hang_limit_s()); its memory is then never freed, since freeing it
/// would wait for the kernel.
std::unique_ptr<Trials> make_gpu_trials(const Problem& problem, const DeviceFacts& device,
                                        const TrialOptions& options);

}  // namespace attnforge
