// patch.h - which rows of an output are compared with the oracle, and the smaller problem that has
// just these rows.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Query rows [row_begin, row_end) of every head of sequences [batch_begin, batch_end).
struct Patch {
  std::int64_t batch_begin = 0, batch_end = 1;
  std::int64_t row_begin = 0, row_end = 1;

  friend bool operator==(const Patch&, const Patch&) = default;
};

/// A problem whose whole output is a patch: its query row 0 is the patch's first row, its key 0 is
/// the problem's key kv_begin. Masks see the same keys: lengths and windows are shifted (alignment
/// is bottom-right), and keys that no row of the patch sees are left off where they are at an end.
/// The layout is kBshd; tensors come from patch_tensors().
struct PatchProblem {
  Problem problem;
  std::int64_t kv_begin = 0;
};
PatchProblem patch_problem(const Problem& problem, const Patch& patch);

/// `tensors` of `problem` (device or host memory) with the pointers of q, k and v moved to a patch;
/// o and lse are left null.
Tensors patch_tensors(const Problem& problem, const Tensors& tensors, const Patch& patch,
                      const PatchProblem& small);

/// The whole output as one patch if the oracle's work (1 TFLOP/s on a GPU of 132 SMs is assumed)
/// stays under about 50 ms and the host compares at most a million elements; else patches of 8 rows
/// within these bounds: first and last rows, rows on both sides of multiples of 64, 80, 96, 112 and
/// 176, random rows, in the first, the last and random sequences. At least 4 patches, whatever they
/// cost. Empty if the output is.
std::vector<Patch> patches(const Problem& problem, const DeviceFacts& device, unsigned seed);

}  // namespace attnforge
