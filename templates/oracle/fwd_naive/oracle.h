// oracle.h - fwd_naive on a list of rows: what the outputs of other kernels are compared with.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/launch.h"
#include "templates/base_params.h"

namespace attnforge {

/// How many entries of a list a block of `config` takes: they must be of one sequence.
int rows_per_block(const Config& config);

/// The launch of fwd_naive's `config` that computes `num_rows` rows of `problem`, for every head.
/// The list is in device memory; groups of rows_per_block() are of one sequence. Tensors are those
/// of the problem but for o and lse, of which entry i is row i of sequence 0.
Launch launch_rows(const Config& config, const Problem& problem, const ListedRow* rows,
                   std::int64_t num_rows);

}  // namespace attnforge
