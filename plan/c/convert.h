// convert.h - nouns of the C API as those of the library.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "attnforge/c.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"

namespace attnforge {

/// What callers have who were compiled when sequences' lengths were the last part there was.
inline constexpr std::size_t kFirstTensorsBytes = offsetof(attnforge_tensors, block_mask);

/// Throws Error(kInvalidArgument). Cheap: it is part of every run. `parts`: where to put as many of
/// a merge.
Tensors from_c(const attnforge_tensors* tensors, std::span<AttentionState> parts = {});

Tensor from_c(const attnforge_tensor& tensor);
Rows from_c(const attnforge_rows& rows);

/// `problem` with other sizes, not validated. Throws Error(kInvalidArgument), naming the argument.
Problem with_sizes(Problem problem, const attnforge_sizes* sizes, std::string_view name);

/// `callback` may be NULL. A callback that answers other than 0 sets *stop (which may be nullptr).
ProgressFunction progress_from_c(attnforge_progress_function callback, void* user, bool* stop);

inline const char* or_empty(const char* text) { return text == nullptr ? "" : text; }

}  // namespace attnforge
