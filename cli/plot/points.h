// points.h - what figures need of the rows of a sweep, by the names of their columns.
#pragma once

#include <string>
#include <vector>

#include "attnforge/problem.h"
#include "cli/output/table.h"

namespace attnforge::cli {

/// A good row, read.
struct SweepPoint {
  std::string group;   // the problem without what a line or an axis stands for
  std::string family;  // "best" where none was requested
  std::string gpu, date;
  std::string provenance;  // "": not said, or of a peer
  DType dtype = DType::kBf16;
  std::string blocks;  // of a block mask: "64", "128:64"; "": none
  double density = 0;
  std::string unmasked;  // the problem without them
  int batch = 0, head_dim = 0;
  double seqlen = 0, seqlen_kv = 0, time_us = 0, tflops_per_s = 0, gbytes_per_s = 0, peak_bytes = 0,
         quadratic_bytes = 0;
  double noise = 0;  // interquartile range / median of the time
};

/// The good rows of `bench --csv` and --out, or of bench/peers.py, whose lines are attnforge,
/// tuned, and its peers. Throws Error(kInvalidArgument) naming a column that is missing.
std::vector<SweepPoint> sweep_points(const Table& table);

}  // namespace attnforge::cli
