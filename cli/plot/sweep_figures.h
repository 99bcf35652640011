// sweep_figures.h - the figures of a sweep: latency, throughput and memory against sequence length,
// padding waste against head dim, time against the density of block masks. Pure.
#pragma once

#include <string>
#include <vector>

#include "attnforge/problem.h"
#include "cli/output/table.h"
#include "cli/plot/figure.h"

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

/// Figures of rows with the columns of `bench --csv`, found by their names; failed rows are left
/// out.
/// - A line stands for a family (or for the best one, where none was requested), and a head dim, a
///   batch where these differ; problems that differ in anything else (dtype, heads,
///   mask, ...) are figures of their own, and so are head dims where there would be many lines.
/// - Figures against the sequence length are made of lines of at least two lengths. The memory
///   figure has a computed line: what the inputs, the outputs and a matrix of scores in fp32 take.
/// - The time against the length of a cache, of rows with fewer queries than keys, has a computed
///   line, too: what the memory of a GPU that is known takes for all tensors.
/// - The waste of a head dim D that is no power of two is 1 - D / P, with P the next power of two,
///   and, measured, 1 - time / time of head dim P.
/// - The time against the density of block masks, a line for each size of blocks and family, and
///   that of the same problem without a mask, and that times the density: what is ideal.
/// Throws Error(kInvalidArgument) naming a column that is missing, or if no figure can be made.
std::vector<Figure> sweep_figures(const Table& rows);

}  // namespace attnforge::cli
