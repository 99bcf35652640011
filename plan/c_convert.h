// c_convert.h - nouns of the C API as those of the library, and back.
#pragma once

#include <cstddef>

#include "attnforge/c.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"

namespace attnforge {

/// Sizes of structs that have grown, in their first version.
inline constexpr std::size_t kFirstProblemBytes = offsetof(attnforge_problem, tf32);
inline constexpr std::size_t kFirstTensorsBytes = offsetof(attnforge_tensors, rope_cos);

/// Throws Error(kInvalidProblem) or Error(kInvalidArgument); the result is valid.
Problem from_c(const attnforge_problem* problem);
attnforge_problem to_c(const Problem& problem);

/// Throws Error(kInvalidArgument). Cheap: it is part of every run.
Tensors from_c(const attnforge_tensors* tensors);

/// `callback` may be NULL. A callback that answers other than 0 sets *stop (which may be nullptr).
ProgressFunction progress_from_c(attnforge_progress_function callback, void* user, bool* stop);

inline const char* or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace attnforge
