// cases.h - the hard cases of attention by name.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "tests/support/host_problem.h"

namespace attnforge::test {

struct ConformanceCase {
  std::string name;                   // a test's name
  std::vector<std::string> problems;  // texts
  Inputs inputs = Inputs::kNormal;
  Gaps gaps = {};
  int sampled_rows = 0;  // 0: all rows are compared
  Blocks blocks = Blocks::kRandom;
};
void PrintTo(const ConformanceCase& c, std::ostream* out);

std::vector<ConformanceCase> conformance_cases();
/// Of gradients.
std::vector<ConformanceCase> backward_cases();
/// Of gradients with parts that a backward family may be without, even the oracle: block masks and
/// sinks.
std::vector<ConformanceCase> backward_cases_of_parts();

}  // namespace attnforge::test
