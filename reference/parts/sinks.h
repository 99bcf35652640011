// sinks.h - dsinks on the CPU in fp64.
#pragma once

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/gradients.h"

namespace attnforge {

/// ReferenceGradients::dsinks of a valid backward problem that has them, from o, lse, dout and dlse
/// in host memory; with `accumulate` what dsinks holds is added.
ReferenceGradient sink_gradients(const Problem& problem, const Tensors& tensors);

}  // namespace attnforge
