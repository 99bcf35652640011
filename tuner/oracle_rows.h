// oracle_rows.h - which rows of an output are compared with the oracle.
#pragma once

#include <cstdint>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "reference/sequences.h"
#include "templates/oracle/fwd_naive/oracle.h"

namespace attnforge {

/// Query rows [row_begin, row_end) of every head of sequences [batch_begin, batch_end).
struct RowRange {
  std::int64_t batch_begin = 0, batch_end = 1;
  std::int64_t row_begin = 0, row_end = 1;

  friend bool operator==(const RowRange&, const RowRange&) = default;
};

/// The whole output as one range if the oracle's work (1 TFLOP/s on a GPU of 132 SMs is assumed)
/// stays under about 50 ms and the host compares at most a million elements; else ranges of 8 rows
/// within these bounds: first and last rows, rows on both sides of multiples of 64, 80, 96, 112 and
/// 176, random rows, in the first, the last and random sequences. At least 4 ranges, whatever they
/// cost. Empty if the output is.
std::vector<RowRange> rows_to_compare(const Sequences& sequences, const DeviceFacts& device,
                                      unsigned seed);

/// Multiply-adds, times 2, of the rows of a range in all heads; of a problem whose sequences are
/// all full.
double flops(const Problem& problem, const RowRange& range);

/// All rows of the ranges, in groups of `group` that are of one sequence: a range whose rows in a
/// sequence do not fill the last group repeats the last of them.
std::vector<ListedRow> listed(const std::vector<RowRange>& ranges, int group);

}  // namespace attnforge
