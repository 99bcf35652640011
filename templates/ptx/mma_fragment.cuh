// mma_fragment.cuh - which elements of operands a thread has ("Matrix fragments for mma").
#pragma once

#include "base.cuh"

namespace attnforge {

/// Where a thread's elements of the 16 x 8 accumulator lie: c[0], c[1] in row(), c[2], c[3] in
/// row() + 8, columns column() and column() + 1. Operand A (16 x 16) has the same rows, with
/// registers {k 0-7: row, row + 8, k 8-15: row, row + 8}.
struct MmaFragment {
  ATTNFORGE_DEVICE static int row(int lane) { return lane >> 2; }
  ATTNFORGE_DEVICE static int column(int lane) { return (lane & 3) * 2; }
};

}  // namespace attnforge
