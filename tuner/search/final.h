// final.h - the choice among the best: a race, the rule for ties, a second proof.
#pragma once

#include <string>

#include "tuner/search/search_bench.h"

namespace attnforge {

/// The config that wins the final, proved once more: a race condition may have passed the first
/// proof. "": none works.
std::string winner_of_final(SearchBench& bench);

}  // namespace attnforge
