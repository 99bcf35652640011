// descent.h - the compiling and first timing of candidates: seeds, then from the leaders to their
// neighbours.
#pragma once

#include <cstddef>
#include <vector>

#include "tuner/search/search_bench.h"

namespace attnforge {

/// Candidates that were to be measured.
struct Tally {
  int left = 0;
  int measured = 0;      // in this run
  double measure_s = 0;  // for those
};

/// Loads and times what is not known of them, until `share` of the time is over.
void measure(SearchBench& bench, Tally& tally, const std::vector<std::size_t>& indices,
             double share);

/// From the leaders to their neighbours, until that has not helped for some steps.
void descend(SearchBench& bench, Tally& tally);

/// What a quick search does of that, once its seeds are timed and if there is time: a few
/// neighbours of the fastest.
void look_around(SearchBench& bench, Tally& tally);

}  // namespace attnforge
