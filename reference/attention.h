// attention.h - the oracle: attention forward on the CPU in fp64, with every option of Problem.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// A row of q, o and lse; of a list of keys, a row of k and v with the key as its query.
struct QueryRow {
  std::int64_t batch = 0;
  std::int64_t head = 0;   // of q
  std::int64_t query = 0;  // position in the sequence of queries

  friend bool operator==(const QueryRow&, const QueryRow&) = default;
};

/// Where a row begins in a tensor, in elements, and its number in rows of numbers.
inline std::int64_t offset_of(const Tensor& tensor, const QueryRow& row) {
  return row.batch * tensor.stride_batch + row.head * tensor.stride_head +
         row.query * tensor.stride_row;
}
inline float number_at(const Rows& rows, const QueryRow& row) {
  return rows.data[row.batch * rows.stride_batch + row.head * rows.stride_head + row.query];
}

/// What the rows of an output should be, and what decides how far a correct kernel may be off.
struct Reference {
  std::vector<QueryRow> rows;
  int head_dim_v = 0;
  std::vector<double> o;    // [rows][head_dim_v]
  std::vector<double> lse;  // [rows], natural logarithm; -inf for a row that sees no key
  // sqrt(sum of squares) / sum of the probabilities of a row: 1 / sqrt(n) for n equal ones, 1 for a
  // single one.
  std::vector<double> spread;  // [rows]
  // Bound of the scores of a row before the soft cap: softmax_scale * |q| * the largest |k| that it
  // sees.
  std::vector<double> score_magnitude;  // [rows]
  // softmax_scale * the square root of the sum of the squares of the products q_d k_d that a score
  // adds up, after rotation; the largest of the keys that a row sees. Independent roundings of the
  // factors are relative to it. [rows], 0 where
  // rows of q and k are taken as they are.
  std::vector<double> product_magnitude;
  double max_abs_v = 0;  // over the whole of v
};

/// Computes `rows` from q, k, v, or the parts of a merge, and all else that the problem has, in
/// host memory (tensors.o and tensors.lse are not looked at). Rotated elements are not rounded.
/// Sums and exponentials are in fp64; the inputs are taken as they are. Rows next to each other
/// that share batch and head are cheapest. Infinite and NaN inputs have their IEEE consequences,
/// but keys that a row does not see have none. A row whose scores are all -inf counts as one that
/// sees no key. Cost: about 2 GFLOP/s a core. `threads` 0: one a core. Throws
/// Error(kInvalidProblem), Error(kInvalidArgument) for null pointers, rows outside the problem and
/// positions outside the tables, sequences that check_sequences() refuses, and texts, which need
/// functions of their own.
Reference reference_attention(const Problem& problem, const Tensors& tensors,
                              std::span<const QueryRow> rows, int threads = 0);
/// All rows.
Reference reference_attention(const Problem& problem, const Tensors& tensors, int threads = 0);

}  // namespace attnforge
