// arbitrary_problem.h - any_problem.h by rapidcheck, which shrinks what fails to the plainest
// problem that still does.
#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <ostream>
#include <vector>

#include "tests/support/any_problem.h"

namespace attnforge {

inline std::ostream& operator<<(std::ostream& out, const Problem& problem) {
  return out << '"' << to_string(problem) << '"';
}

namespace test {

/// Decisions of rapidcheck. Only inside of a property or of rc::gen::exec().
struct ArbitraryChoices {
  /// As likely at the first test of a property as at its last.
  std::int64_t between(std::int64_t least, std::int64_t most) const {
    return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(least, most + 1));
  }
  bool one_in(int n) const { return between(0, n - 1) == n - 1; }
  std::int64_t size(int bits) const { return between(0, std::int64_t{1} << between(0, bits)); }
  template <class Value>
  Value among(const std::vector<Value>& values) const {
    return values[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }
};

/// A generator, so that a failure is printed as one problem and not as its decisions.
inline rc::Gen<Problem> arbitrary_problem(const MostSizes& most = {}) {
  return rc::gen::exec([most] {
    ArbitraryChoices choices;
    return any_problem(choices, most);
  });
}
inline rc::Gen<Problem> arbitrary_backward_problem(const MostSizes& most = {}) {
  return rc::gen::exec([most] {
    ArbitraryChoices choices;
    return any_backward_problem(choices, most);
  });
}

}  // namespace test
}  // namespace attnforge
