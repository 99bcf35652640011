#include "tuner/search/descent.h"

#include <algorithm>
#include <set>

namespace attnforge {
namespace {

// Candidates prepared at a time: bounds the kernels that are loaded at once.
constexpr std::size_t kBatch = 64;
constexpr std::size_t kLoadedMost = 32;  // fastest ones that stay loaded between batches
constexpr std::size_t kDescentLeaders = 4, kDescentStep = 24;
// Seeds alone are within 2% of the best in 9 of the 12 recorded spaces, with this in 11; most of
// these have sources that are compiled.
constexpr std::size_t kQuickStep = 8;
constexpr int kDescentPatience = 2;  // steps without progress
constexpr double kProgress = 0.995;

/// Shuffled rounds of the batch's hopeful ones and the best so far.
void first_rounds(SearchBench& bench, const std::vector<std::size_t>& indices, double share) {
  const SearchState& state = bench.state;
  const std::vector<std::size_t> order = state.by_time();
  if (order.empty()) return;
  std::vector<std::size_t> hopeful;
  for (std::size_t index : indices) {
    const Entry& entry = state[index];
    const bool good = entry.loaded && entry.known && entry.measurement.status == Status::kOk;
    if (good && entry.measurement.time_us <= kHopeless * state.best_us()) hopeful.push_back(index);
  }
  const std::size_t best = order.front();
  if (state[best].loaded && std::find(hopeful.begin(), hopeful.end(), best) == hopeful.end())
    hopeful.push_back(best);
  if (hopeful.size() < 2) return;
  bench.progress.enter(Progress::Phase::kMeasure, static_cast<int>(hopeful.size()));
  bench.race(hopeful, kFirstRounds, share);
}

/// The model's best `most` of those next to the `leaders` fastest.
std::vector<std::size_t> unknown_neighbours(const SearchBench& bench, std::size_t leaders,
                                            std::size_t most) {
  const std::vector<std::size_t> order = bench.state.by_time();
  std::set<std::size_t> found;
  for (std::size_t i = 0; i < order.size() && i < leaders; ++i) {
    for (const std::size_t index : neighbours(bench.candidates, order[i])) {
      if (!bench.state[index].known) found.insert(index);
    }
  }
  std::vector<std::size_t> frontier(found.begin(), found.end());
  std::ranges::stable_sort(frontier, {},
                           [&](std::size_t i) { return bench.candidates[i].estimate_us; });
  frontier.resize(std::min(frontier.size(), most));
  return frontier;
}

}  // namespace

void measure(SearchBench& bench, Tally& tally, const std::vector<std::size_t>& indices,
             double share) {
  std::vector<std::size_t> unknown;
  for (std::size_t index : indices) {
    if (!bench.state[index].known) unknown.push_back(index);
  }
  ProgressReporter& progress = bench.progress;
  progress.enter(Progress::Phase::kCompile, static_cast<int>(unknown.size()));
  const double before_s = bench.clock.now_s();
  int done = 0;
  for (std::size_t begin = 0; begin < unknown.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, unknown.size());
    const std::vector<std::size_t> batch(unknown.begin() + begin, unknown.begin() + end);
    if (!bench.alive(bench.search_deadline(share))) {
      bench.clock.cut = true;
      break;
    }
    if (begin > 0) {
      progress.enter(Progress::Phase::kCompile, static_cast<int>(unknown.size()));
      progress.state.done = done;
    }
    bench.load(batch, share, true);
    done = progress.state.done;
    // The rounds may go on a little after the last compile: they are short, and a time without them
    // is a rough one.
    first_rounds(bench, batch, std::max(share, kSearchShare));
    bench.keep_loaded(kLoadedMost);
  }
  const auto known = std::count_if(unknown.begin(), unknown.end(),
                                   [&](std::size_t index) { return bench.state[index].known; });
  tally.measured += static_cast<int>(known);
  tally.left += static_cast<int>(unknown.size()) - static_cast<int>(known);
  tally.measure_s += bench.clock.now_s() - before_s;
}

void descend(SearchBench& bench, Tally& tally) {
  int idle = 0;
  while (idle < kDescentPatience) {
    const std::vector<std::size_t> frontier = unknown_neighbours(bench, kDescentLeaders,
                                                                 kDescentStep);
    if (frontier.empty()) return;
    if (!bench.alive(bench.search_deadline(kSearchShare))) {
      bench.clock.cut = true;
      return;
    }
    const double before_us = bench.state.best_us();
    measure(bench, tally, frontier, kSearchShare);
    idle = bench.state.best_us() < kProgress * before_us ? 0 : idle + 1;
    if (bench.clock.cut) return;
  }
}

void look_around(SearchBench& bench, Tally& tally) {
  const std::vector<std::size_t> frontier = unknown_neighbours(bench, 1, kQuickStep);
  if (!frontier.empty() && bench.alive(bench.search_deadline(kSearchShare)))
    measure(bench, tally, frontier, kSearchShare);
}

}  // namespace attnforge
