// proof.h - one run of a loaded candidate against the fp64 reference, and whether it wrote only
// where it may.
#pragma once

#include "reference/attention.h"
#include "tests/conformance/cases.h"
#include "tests/conformance/gpu.h"

namespace attnforge::test {

inline constexpr unsigned kConformanceSeed = 7;

/// Inputs, what should come out, and the project's limit for it.
struct Expectation {
  HostProblem host;
  Reference reference;
  double plain_error;

  Expectation(const Problem& problem, const ConformanceCase& c);
};

/// `host` as it is after a run on freshly poisoned outputs and scratch.
HostProblem after_run(const Loaded& loaded, GpuProblem& gpu, const HostProblem& host);

/// "" if a run's outputs are right and nothing else was written; else what is wrong.
std::string fault_of(const Expectation& expected, HostProblem& after);

/// The same of two runs, whose outputs must also be the same bits, or why it did not compile.
std::string fault_of(const Compiled& compiled, const Expectation& expected, GpuProblem& gpu);

}  // namespace attnforge::test
