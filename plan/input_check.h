// input_check.h - what only the GPU knows of a run, read back and looked at: lengths and page
// tables, under ATTNFORGE_CHECK_INPUTS=1.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "attnforge/append_kv.h"
#include "attnforge/plan.h"

namespace attnforge {

/// Arrays of an append as the host sees them.
struct AppendArrays {
  std::vector<int> cu_seqlens;  // empty: not packed
  std::vector<int> used;        // [batch]
  std::vector<int> table;       // [batch, pages_of_row]; empty: not in pages
  std::int64_t pages_of_row = 0;
};

/// Copies them, in the current context, once `stream` has passed.
AppendArrays read_arrays(const AppendSizes& sizes, const AppendTensors& tensors, CUstream stream);

/// Throws Error(kInvalidArgument) for lengths that are negative, descend or are above their bounds,
/// for pages that rows need and that are not among num_pages, and for a page that is written twice.
void check_arrays(const AppendSizes& sizes, const AppendArrays& arrays, std::int64_t num_pages);

/// Copies the lengths and the page table of a plan's run, in the current context, once `stream` has
/// passed, and throws as check_sequences() does. Nothing where a problem has none.
void check_run_arrays(const Problem& problem, const Tensors& tensors, CUstream stream);

}  // namespace attnforge
