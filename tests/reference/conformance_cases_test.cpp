// conformance_cases_test.cpp - the lists of hard cases are lists of problems, without a GPU.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/conformance/cases.h"

namespace attnforge::test {
namespace {

TEST(ConformanceCases, OfBackwardAreBackwardProblemsByDifferentNames) {
  for (const auto& cases : {backward_cases(), backward_cases_of_parts()}) {
    std::set<std::string> names;
    for (const ConformanceCase& c : cases) {
      EXPECT_TRUE(names.insert(c.name).second) << c.name;
      EXPECT_FALSE(c.problems.empty()) << c.name;
      for (const std::string& text : c.problems)
        EXPECT_TRUE(is_backward(parse_problem(text))) << text;
    }
  }
}

}  // namespace
}  // namespace attnforge::test
