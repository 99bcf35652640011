// cuts.h - why candidates were cut, counted. Pure.
#pragma once

#include <vector>

#include "attnforge/inspect.h"

namespace attnforge::cli {

/// How many configs were cut for a kind of reason, and the first of them. Reasons that differ only
/// in numbers are of one kind.
struct CutCount {
  int count = 0;
  const CandidateInfo* example = nullptr;  // one of `candidates`
};

/// The most frequent first.
std::vector<CutCount> counted_cuts(const std::vector<CandidateInfo>& candidates);

}  // namespace attnforge::cli
