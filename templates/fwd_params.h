// fwd_params.h - fills the argument of a forward kernel: sizes when a launch is planned, pointers
// and strides when it runs.
#pragma once

#include <cstddef>
#include <span>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "templates/params_fwd.h"

namespace attnforge {

/// Everything that the problem decides; pointers and strides are null and 0. Windows that are open,
/// or wider than any length, become kOpenWindow.
FwdParams fwd_params(const Problem& problem);

/// Family::bind of a family whose kernel argument is a FwdParams or begins with one. `out` has the
/// size of step.params.
void bind_fwd(const LaunchStep& step, const Tensors& tensors, void* workspace,
              std::span<std::byte> out);

}  // namespace attnforge
