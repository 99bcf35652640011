// list.cpp - the list of parts: the one file that names them all.
#include "generator/parts/part.h"

namespace attnforge {

std::span<const ProblemPart* const> problem_parts() {
  static constexpr const ProblemPart* kParts[] = {
      &gradients_of_problem, &sinks_of_problem,      &rope_of_problem, &lengths_of_problem,
      &pages_of_problem,     &block_mask_of_problem, &code_of_problem, &merge_of_problem,
      &scales_of_problem};
  static_assert(std::size(kParts) <= 64, "PointerCheck has a bit for each");
  return kParts;
}

}  // namespace attnforge
