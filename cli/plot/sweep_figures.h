// sweep_figures.h - the figures of a sweep: latency, throughput and memory against sequence length,
// padding waste against head dim, time against the density of block masks. Pure.
#pragma once

#include <vector>

#include "cli/output/table.h"
#include "cli/plot/figure.h"

namespace attnforge::cli {

/// Figures of rows with the columns of `bench --csv`, found by their names; failed rows are left
/// out.
/// - A line stands for a family (or for the best one, where none was requested), and a head dim, a
///   batch where these differ; problems that differ in anything else (dtype, heads,
///   mask, ...) are figures of their own, and so are head dims where there would be many lines.
/// - Figures against the sequence length are made of lines of at least two lengths. The memory
/// figure
///   has a computed line: what the inputs, the outputs and a matrix of scores in fp32 take.
/// - The time against the length of a cache, of rows with fewer queries than keys, has a computed
///   line, too: what the memory of a GPU that is known takes for all tensors.
/// - The waste of a head dim D that is no power of two is 1 - D / P, with P the next power of two,
///   and, measured, 1 - time / time of head dim P.
/// - The time against the density of block masks, a line for each size of blocks and family, and
///   that of the same problem without a mask, and that times the density: what is ideal.
/// Throws Error(kInvalidArgument) naming a column that is missing, or if no figure can be made.
std::vector<Figure> sweep_figures(const Table& rows);

}  // namespace attnforge::cli
