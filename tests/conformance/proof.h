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

/// Expects of a run's outputs that they are right, and that nothing else was written.
void expect_right(const Expectation& expected, HostProblem& after);

}  // namespace attnforge::test
