// oracle_list.h - the rows that an oracle computes, on the GPU: as a list, and where they lie in
// the outputs of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/plan.h"
#include "reference/sequences.h"
#include "runtime/memory.h"
#include "templates/oracle/fwd_naive/oracle.h"
#include "tuner/instruments.h"

namespace attnforge {

struct ListOnGpu {
  int num_rows = 0;
  Buffer list;    // of ListedRow
  Buffer places;  // the same rows as they lie in a tensor of queries

  ListOnGpu() = default;
  /// For rows of keys: `sequences` transposed. Throws Error(kCuda).
  ListOnGpu(const Sequences& sequences, const std::vector<ListedRow>& rows);

  const ListedRow* listed() const { return static_cast<const ListedRow*>(list.data()); }
  /// Enqueues a copy of these rows of all heads of `from`, [heads][num_rows][columns], to `to`.
  void gather(const Instruments& instruments, const Tensor& from, DType dtype, std::int64_t heads,
              int columns, const Buffer& to, CUstream stream) const;
};

/// For what was enqueued so far. Throws Error(kCuda) where something else keeps the GPU busy.
void wait_for_oracle(CUstream stream, const Problem& problem);
void wait_for_copies(CUstream stream);

}  // namespace attnforge
