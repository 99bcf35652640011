#include "reference/parts/user_code.h"

#include <fmt/format.h>

#include <tuple>

#include "attnforge/error.h"
#include "reference/score.h"

namespace attnforge {

void check_code_functions(const Problem& problem, const CodeFunctions& code) {
  for (const auto& [name, has_text, has_function] :
       {std::tuple("score", !problem.score.empty(), code.score != nullptr),
        std::tuple("mask", !problem.mask.empty(), code.mask != nullptr)}) {
    if (has_text == has_function) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("reference attention: the problem has {} text for {}, and there is {} "
                            "function that computes it",
                            has_text ? "a" : "no", name, has_function ? "a" : "no"));
  }
}

bool knows_score_sizes(const Problem& problem) { return problem.score.empty(); }
bool knows_weights(const Problem& problem) {
  return knows_score_sizes(problem) && problem.mask.empty();
}

}  // namespace attnforge
