// outputs.h - outputs against the oracle: how far off, where, and whether that is within tolerance.
#pragma once

#include <cstdint>
#include <string>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"
#include "reference/compare/tolerance.h"

namespace attnforge {

/// Infinities must be met exactly, where an output that the dtype cannot hold counts as infinite;
/// NaN in the output is never right, unless the oracle has it too.
struct Comparison {
  std::string tensor;    // its name: "o"
  bool of_keys = false;  // of k's heads and keys, not of queries
  std::int64_t elements = 0;
  std::int64_t wrong = 0;            // outside tolerance, or not finite as they should be
  std::int64_t nonfinite_wrong = 0;  // of those, the ones that are NaN or infinite on one side only
  double max_error = 0;              // of finite elements
  double max_abs_expected = 0;       // of finite elements
  double cosine = 1;                 // similarity over finite elements; 1 if both are zero
  // The element furthest outside what is allowed, or nearest to it; the first one that is not
  // finite goes before all.
  QueryRow worst_row;  // of keys: with the key as its query
  int worst_column = 0;
  double worst_actual = 0;
  double worst_expected = 0;
  double worst_allowed = 0;

  bool passed() const { return wrong == 0; }
};

/// One line: verdict, largest error, cosine similarity, worst element with coordinates and both
/// values.
std::string to_string(const Comparison& comparison);

/// tensors.o (dtype_o, host memory) in the rows of `expected`.
Comparison compare_output(const Problem& problem, const Tensors& tensors, const Reference& expected,
                          const Tolerance& tolerance);
/// tensors.lse in the rows of `expected`.
Comparison compare_lse(const Problem& problem, const Tensors& tensors, const Reference& expected,
                       const Tolerance& tolerance);

/// Both, with output_tolerance() and lse_tolerance(). lse passes unseen when the problem has none.
struct Verdict {
  Comparison o, lse;
  bool passed() const { return o.passed() && lse.passed(); }
};
Verdict compare(const Problem& problem, const Tensors& tensors, const Reference& expected);
/// Compares outputs that hold just the rows of `expected`, in their order: `o` is
/// [rows][head_dim_v] of dtype_o, `lse` [rows].
Verdict compare_rows(const Problem& problem, const void* o, const float* lse,
                     const Reference& expected);
/// The line of o, and that of lse when there is one.
std::string to_string(const Verdict& verdict);

}  // namespace attnforge
