// backward_proof.h - one run of a loaded candidate of a backward family against the fp64 gradients,
// and whether it wrote only where it may.
#pragma once

#include <string>

#include "reference/gradients.h"
#include "reference/parts/user_code.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/gpu.h"
#include "tests/support/plain/gradients.h"

namespace attnforge::test {

/// Inputs, o and lse of the forward's oracle among them, and what should come out.
struct BackwardExpectation {
  HostProblem host;
  ReferenceGradients reference;
  PlainGradientErrors plain;

  BackwardExpectation(const Problem& problem, const ConformanceCase& c);
  /// Of a problem with code.
  BackwardExpectation(const Problem& problem, const CodeFunctions& code);
};

/// "" if a run's gradients are right and nothing else was written; else what is wrong.
std::string fault_of(const BackwardExpectation& expected, HostProblem& after);

/// The same of two runs on poisoned outputs and scratch, or why it did not compile. With
/// problem.deterministic the gradients must also be the same bits, else both must be right.
std::string fault_of(const Compiled& compiled, const BackwardExpectation& expected,
                     GpuProblem& gpu);

}  // namespace attnforge::test
