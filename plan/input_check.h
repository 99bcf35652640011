// input_check.h - what only the GPU knows of a run, read back and looked at: lengths and page
// tables, under ATTNFORGE_CHECK_INPUTS=1.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <vector>

#include "attnforge/append_kv.h"
#include "attnforge/plan.h"

namespace attnforge {

/// A page table as the host sees it: [batch, columns]. Empty: there are no pages.
struct HostTable {
  std::vector<int> entries{};
  std::int64_t columns = 0;
  std::int64_t num_pages = 0;
};

/// Arrays of a run. Empty: not there.
struct RunArrays {
  std::vector<int> lengths_q{}, lengths_kv{};  // as LengthArrays has them
  HostTable pages{};
};

/// Arrays of an append.
struct AppendArrays {
  std::vector<int> cu_seqlens{};  // empty: not packed
  std::vector<int> used{};        // [batch]
  HostTable pages{};
};

/// Copies them, in the current context, once `stream` has passed. Throws Error(kCuda).
RunArrays read_arrays(const Problem& problem, const Tensors& tensors, CUstream stream);
AppendArrays read_arrays(const AppendSizes& sizes, const AppendTensors& tensors, CUstream stream);

/// Throw Error(kInvalidArgument) for lengths that are negative, descend or are above their bounds,
/// for pages that rows need and that the pool does not have, and for a page that is written twice.
void check_arrays(const Problem& problem, const LengthArrays& tokens, const RunArrays& arrays);
void check_arrays(const AppendSizes& sizes, const AppendArrays& arrays);

}  // namespace attnforge
