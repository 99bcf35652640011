// part.h - the optional parts of problems, a row for each: what must hold of a problem
// that has it, and in a run its operands, what else of the run's tensors is its own, and whether
// that is good. Whatever walks this table names no part.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/tensors/operands.h"

namespace attnforge {

class OperandList;  // generator/tensors/operand_list.h

/// A run on tensors of the host's that have addresses now, one for each operand.
struct BoundOperands {
  std::span<const Operand> list;
  std::span<void* const> addresses;
  const HostTensors& host;
  std::vector<std::uint64_t>& code_words;  // what the run's tensors may point to
};

/// Null: nothing. All are of problems that have the part.
struct ProblemPart {
  bool (*in)(const Problem&) = nullptr;

  // ---- Of a problem ----
  /// Throws Error(kInvalidProblem) for words that do not fit together; asked of all problems.
  void (*validate)(const Problem&) = nullptr;
  /// "" or why products of its sizes are too large.
  std::string (*too_large)(const Problem&) = nullptr;
  /// Rounds sizes of its own for a bucket, whose others are rounded already.
  void (*round)(const Problem& exact, Problem& bucket) = nullptr;
  /// typical_problem(): makes it one without the part, or of other sizes.
  void (*make_typical)(const Problem& exact, Problem& typical) = nullptr;
  /// minimum_bytes(): what is moved in addition to q, k, v, o and lse.
  double (*bytes)(const Problem&) = nullptr;
  double work = 1;  // flops() of a problem with the part, relative to one without

  // ---- Of a run ----
  const HeadNumbers* of_heads = nullptr;        // among its inputs
  void (*add_inputs)(OperandList&) = nullptr;   // and tables
  void (*add_outputs)(OperandList&) = nullptr;  // after those of all parts, and a forward's own
  /// Sets what the operands' addresses do not say.
  void (*complete)(const Problem&, const BoundOperands&, Tensors&) = nullptr;
  /// Sets the tables of the host that reference/ does not set, for runs on made-up inputs.
  void (*make_up)(const Problem&, HostTensors&, std::uint64_t seed) = nullptr;
  /// Throws Error(kInvalidArgument) for tensors of the host that do not fit together.
  void (*check_host)(const Problem&, std::span<const Operand>, const HostTensors&) = nullptr;
  /// Its strides in contiguous tensors (contiguous_tensors()).
  void (*lay_out)(const Problem&, Tensors&) = nullptr;
  /// What good() needs of a problem and is too slow to find out in each run.
  std::uint64_t (*known)(const Problem&) = nullptr;
  /// Whether a run's tensors are what the problem needs: a few nanoseconds.
  bool (*good)(const Problem&, std::uint64_t known, const Tensors&) = nullptr;
  /// Throws Error(kInvalidArgument), naming the tensor, the value and what is required, where they
  /// are not.
  void (*explain)(const Problem&, const Tensors&) = nullptr;
};

/// All of them: X_of_problem of each parts/X.cpp, in the order of these names.
std::span<const ProblemPart* const> problem_parts();

/// Calls a function of all parts that the problem has.
template <auto kFunction, class... Arguments>
void for_each_part(const Problem& problem, Arguments&&... arguments) {
  for (const ProblemPart* part : problem_parts())
    if (part->*kFunction != nullptr && part->in(problem)) (part->*kFunction)(arguments...);
}

}  // namespace attnforge
