// params.h - where a run has the table of the pages that hold its keys.
#pragma once

#include "base.cuh"

namespace attnforge {

/// In the argument of a kernel, after the family's own. The table as PageTable (attnforge/plan.h)
/// has it.
struct alignas(16) PagesParams {
  const int* table;  // [batch, pages of the longest sequence]; -1: none
  i64 stride_batch;  // entries
  int num_pages;     // of the pool
  int unused[3];
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithPages : Params {
  PagesParams pages;
};

}  // namespace attnforge
