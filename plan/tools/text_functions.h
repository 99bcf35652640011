// text_functions.h - the user's texts as functions for the reference, by their trees.
#pragma once

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/parts/user_code.h"

namespace attnforge {

/// The texts of a problem as functions, on a run in host memory whose arrays are borrowed: each has
/// array_elements(), and elements outside of it are 0. What is computed of dargs is added to what
/// the run has there. Throws Error(kUnsupported) naming the place in a text that only a compiler
/// understands.
CodeFunctions text_functions(const Problem& problem, const Tensors& tensors);

}  // namespace attnforge
