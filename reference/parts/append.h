// append.h - new rows to caches on the CPU.
#pragma once

#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// What an append does, on tensors in host memory.
void reference_append(const Problem& problem, const Tensors& tensors);

}  // namespace attnforge
