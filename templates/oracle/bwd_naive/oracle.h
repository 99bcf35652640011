// oracle.h - bwd_naive on lists of rows: what the gradients of other kernels are compared with.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/launch.h"
#include "templates/base_params.h"

namespace attnforge {

/// How many entries of a list a block takes: they must be of one sequence.
inline constexpr int kGradientRowsPerBlock = 8;

/// Lists in device memory; groups of kGradientRowsPerBlock are of one sequence. ListedRow::query is
/// the key's number in `keys`.
struct GradientRows {
  const ListedRow* queries = nullptr;
  const ListedRow* keys = nullptr;
  std::int64_t num_queries = 0, num_keys = 0;
  // In device memory, [num_heads_q][num_queries], and twice [num_heads_kv][num_keys]: of a row the
  // square root of the sum of ds^2, of ds^2 and of p^2.
  float *dq_norms = nullptr, *dk_norms = nullptr, *dv_norms = nullptr;
  // [num_heads_q], of dsinks, which are sums over all rows: the sum of the sizes of what they add
  // up.
  float* dsink_norms = nullptr;
};

/// With dargs, and dq_norms, arrays of gradients have two floats for an element, to which are added
/// its gradient and the sum of the sizes of what that is the sum of: dargs are sums over all rows
/// too.

/// The launch of bwd_naive's `config` that computes these rows of `problem`, for every head.
/// Tensors are those of the problem but for dq, dk and dv, of which entry i is row i of sequence 0.
Launch launch_gradients(const Config& config, const Problem& problem, const GradientRows& rows);

}  // namespace attnforge
