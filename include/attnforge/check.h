// check.h - is an output right? Compares o and lse, or gradients, with the fp64 CPU reference.
#pragma once

#include <cstdint>
#include <string>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"

namespace attnforge {

struct CheckOptions {
  double max_work = 4e9;  // multiply-adds that the reference may spend; rows are sampled beyond. 0:
                          // all rows
  std::uint64_t seed = 1;  // of the sample
};

/// An element of o, of lse (then dim is 0) or of a gradient.
struct CheckedElement {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t row = 0;  // a query; of dk and dv a key
  int dim = 0;
  double got = 0;
  double expected = 0;
  double allowed = 0;  // largest |got - expected| that passes
};

struct CheckReport {
  bool ok = true;
  std::int64_t rows_checked = 0;  // query rows, all heads and sequences; of bwd those of keys, too
  std::int64_t rows_total = 0;
  bool sampled() const { return rows_checked < rows_total; }
  // Elements of o and lse outside the tolerance, or of the gradients.
  std::int64_t wrong = 0;
  std::int64_t nonfinite_wrong = 0;  // of those: NaN or infinite on one side only
  std::string tensor = "o";          // of the next three: "o", or the gradient that is furthest off
  double max_error = 0;              // largest |got - expected| of finite elements
  double cosine_similarity = 1;      // of the checked part; 1 if both are all zero
  CheckedElement worst;      // the largest error in units of what is allowed; not finite ones first
  double max_lse_error = 0;  // 0 without lse
  CheckedElement worst_lse;
  std::string summary{};  // a line on o and, if there is one, a line on lse; or one a gradient
};

/// `tensors` as uploaded and as downloaded again. Sampled rows are the first, the last, those
/// next to multiples of 64 and random ones, spread over all heads and sequences. Takes seconds at
/// most with the default options, all cores. Throws Error(kInvalidArgument) if a vector's size is
/// not the problem's, or a table lacks a row that the problem needs; Error(kUnsupported) for texts
/// of score and mask with what only a compiler understands (docs/USER_CODE.md), and for gradients
/// that were added to others (accumulate; those of dargs are taken to have begun at zeros).
ATTNFORGE_API CheckReport check_output(const Problem& problem, const HostTensors& tensors,
                                       const CheckOptions& options = {});

/// Computes o, and lse if the problem has it, or dq, dk and dv, on the CPU in fp64, rounded once at
/// the end: the reference itself, for machines without a GPU and for small problems. About 2
/// GFLOP/s per core, all cores. Throws as check_output.
ATTNFORGE_API void solve_on_cpu(const Problem& problem, HostTensors& tensors);

/// Host memory that solve_on_cpu(), or a check of all rows, takes in addition to the tensors: 8
/// bytes for each number that comes out, about 100 for each row, and for each core the scores of 16
/// rows.
ATTNFORGE_API double solve_on_cpu_bytes(const Problem& problem);

}  // namespace attnforge
