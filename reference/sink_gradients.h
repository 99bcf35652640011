// sink_gradients.h - a sink as a score, and dsinks on the CPU in fp64.
#pragma once

#include <cstdint>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/gradients.h"

namespace attnforge {

/// The score of a head's rows that has no value; -inf: none.
float sink_of(const Problem& problem, const Tensors& tensors, std::int64_t head);

/// ReferenceGradients::dsinks of a valid backward problem that has them, from o, lse, dout and dlse
/// in host memory; with `accumulate` what dsinks holds is added.
ReferenceGradient sink_gradients(const Problem& problem, const Tensors& tensors);

}  // namespace attnforge
