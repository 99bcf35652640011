#include "reference/score.h"

#include <cmath>

#include "attnforge/host_tensors.h"
#include "reference/sequences.h"

namespace attnforge {

ChangedScore changed_score(const Problem& problem, double scaled) {
  if (problem.softcap == 0.0f) return {scaled};
  const double softcap = problem.softcap, capped = std::tanh(scaled / softcap);
  return {softcap * capped, 1 - capped * capped, 1 + 2 / std::abs(softcap)};
}

// tanh as a quotient of polynomials: 4e-7 of the capped score.
double change_error(const Problem& problem) { return problem.softcap != 0 ? 0x1p-21 : 0; }

void check_head_numbers(const Problem& problem, const Tensors& tensors) {
  for (const HeadNumbers& numbers : head_numbers()) {
    if (numbers.in(problem) && tensors.*numbers.run == nullptr)
      refuse_input("reference: {} is null; give a host pointer", numbers.name);
  }
}

bool changes_scores(const Problem& problem) {
  return problem.softcap != 0 || !knows_score_sizes(problem);
}

}  // namespace attnforge
