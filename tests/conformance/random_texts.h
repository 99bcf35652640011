// random_texts.h - texts and problems that nobody chose, beside what the texts' trees mean.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/conformance/code_cases.h"
#include "tests/conformance/options.h"
#include "tests/support/any_text.h"
#include "tests/support/random_choices.h"

namespace attnforge::test {

/// Calls check(problem, functions, arguments) for as many as the environment says (options.h).
template <class Check>
void for_each_random_text(Op op, const Check& check) {
  const int first = number_of_environment("ATTNFORGE_CONFORMANCE_SEED", 1);
  const int texts = number_of_environment("ATTNFORGE_CONFORMANCE_TEXTS", 12);
  for (int seed = first; seed < first + texts; ++seed) {
    SCOPED_TRACE("ATTNFORGE_CONFORMANCE_TEXTS=1 ATTNFORGE_CONFORMANCE_SEED=" +
                 std::to_string(seed));
    RandomChoices choices(static_cast<std::uint64_t>(seed));
    const AnyText text = any_text(choices);
    Problem problem = any_problem_for_text(choices, op);
    set_text(problem, text);
    check(problem, functions_of(text, problem), arguments_of_text(problem));
  }
}

}  // namespace attnforge::test
