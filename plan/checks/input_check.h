// input_check.h - what only the GPU knows of a run, read back and looked at: lengths and page
// tables, under ATTNFORGE_CHECK_INPUTS=1.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "attnforge/plan.h"

namespace attnforge {

/// A page table as the host sees it: [batch, columns]. Empty: there are no pages.
struct HostTable {
  std::vector<int> entries{};
  std::int64_t columns = 0;
  std::int64_t num_pages = 0;
};

/// Arrays of an append as the host sees them.
struct AppendArrays {
  std::vector<int> cu_seqlens{};  // empty: not packed
  std::vector<int> used{};        // [batch]
  HostTable pages{};
};

/// Copies them, in the current context, once `stream` has passed. Throws Error(kCuda).
AppendArrays read_arrays(const Problem& problem, const Tensors& tensors, CUstream stream);

/// Throws Error(kInvalidArgument) for lengths that are negative, descend or are above their bounds,
/// for pages that rows need and that the pool does not have, and for a page that is written twice.
void check_arrays(const Problem& problem, const AppendArrays& arrays);

/// Copies the lengths and the page table of a plan's run, in the current context, once `stream` has
/// passed, and throws as check_sequences() does. Nothing where a problem has none.
void check_run_arrays(const Problem& problem, const Tensors& tensors, CUstream stream);

}  // namespace attnforge
