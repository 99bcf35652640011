// forward_lse.h - lse of a problem whose scores are anything: by a forward pass.
#pragma once

#include <optional>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "tuner/oracle_list.h"

namespace attnforge {

/// Where a problem that reads lse has a score text, whose scores may be of any size:
/// puts lse of a forward pass of fwd_naive in the place of the likely ones (reference/likely_lse),
/// beside which probabilities might be infinite. Waits for it. Throws Error(kCuda),
/// Error(kCompile).
void set_forward_lse(const Problem& problem, const DeviceFacts& device, const OwnCode& code,
                     const Tensors& tensors, CUstream stream);
/// What it runs, if anything.
std::optional<OracleKernel> lse_oracle(const Problem& problem, const DeviceFacts& device);

}  // namespace attnforge
