// gradients.h - the oracle of backward: dq, dk and dv on the CPU in fp64, with every option of
// Problem.
#pragma once

#include <vector>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"

namespace attnforge {

/// Rows of dq, and rows of dk and dv.
struct BackwardRows {
  std::vector<QueryRow> queries;
  std::vector<QueryRow> keys;
};

struct Sequences;  // reference/sequences.h
/// All there are: keys in the order [sequence, num_heads_kv, key].
BackwardRows all_backward_rows(const Sequences& sequences);

/// How large the products are that an element of a row adds up: what errors of a correct kernel are
/// relative to. A term is p dout of dv, softmax_scale ds k of dq and softmax_scale ds q of dk; an
/// element of dout, k or q counts as the largest of its row.
struct TermSizes {
  double sum = 0;       // of |terms|, with ds as large as what it is the difference of
  double root = 0;      // of the sum of squares of the terms
  double by_score = 0;  // of |terms| times 1 + the size of their score and lse
  double factors = 0;   // of |terms|, with p or ds of 1
};

struct ReferenceGradient {
  int columns = 0;
  std::vector<double> values;    // [rows][columns]
  std::vector<TermSizes> terms;  // [rows]
};

struct ReferenceGradients {
  BackwardRows rows;
  ReferenceGradient dq, dk, dv;
  // A row for each query head, of one column: sums over all rows, whatever `rows` are, of -exp(sink
  // - lse) times a difference. Without one there are no rows.
  ReferenceGradient dsinks{};
  // For each array of problem.dargs, a row for each element, of one column: sums over all rows too.
  std::vector<ReferenceGradient> dargs{};
};

/// Computes `rows` of the gradients of a backward problem from q, k, v, o, lse, dout, dlse and all
/// else that it has, in host memory; with `accumulate` what dq, dk and dv hold is added, else they
/// are not looked at. Sums and exponentials are in fp64; the inputs are taken as they are, o and
/// lse too. Infinite and NaN inputs have their IEEE consequences, but a pair that is masked, or
/// whose row has an lse of -inf, has none. Cost: about 1 GFLOP/s a core. `threads` 0: one a core.
/// Throws Error(kInvalidProblem), Error(kInvalidArgument) for null pointers, rows outside the
/// problem, sequences that check_sequences() refuses, and a forward problem.
ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       const BackwardRows& rows, int threads = 0);
/// All rows.
ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       int threads = 0);

}  // namespace attnforge
