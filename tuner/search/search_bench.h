// search_bench.h - the candidates of a search on the GPU: loaded, proved, sampled, raced and
// released, with what is known of each.
#pragma once

#include <algorithm>
#include <cstddef>
#include <random>
#include <string>
#include <vector>

#include "generator/candidates.h"
#include "tuner/evaluate.h"
#include "tuner/search/progress.h"
#include "tuner/search/race.h"
#include "tuner/search/search_clock.h"
#include "tuner/search/search_history.h"
#include "tuner/search/search_state.h"

namespace attnforge {

inline constexpr double kHopeless = 1.5;  // times the best: not worth a round
inline constexpr int kFirstRounds = 3;    // for every proved candidate

/// Candidates are named by their index; the first is the untuned choice.
struct SearchBench {
  Evaluator& evaluator;
  const std::vector<Candidate>& candidates;
  SearchClock& clock;
  SearchHistory& history;
  ProgressReporter& progress;
  std::mt19937_64 random;
  SearchState state{candidates};
  bool proved_any = false;

  const std::string& digest_of(std::size_t index);
  bool is_favourite(std::size_t index) const { return index == 0 || index == history.incumbent; }
  /// Whether the call might have had it without a search.
  bool is_unsearched(std::size_t index) const {
    const std::vector<std::string>& all = clock.environment.unsearched;
    return index == 0 || std::ranges::find(all, state[index].config) != all.end();
  }
  /// Not all of these are waited for.
  bool is_in_final(std::size_t index) const { return is_favourite(index) || is_unsearched(index); }
  double search_deadline(double share) const;
  /// Asked all the time: does what must be done from time to time, and says whether to go on.
  bool alive(double until_s);
  /// After everything else was recorded: throws if the GPU is lost, with the culprit's try stored
  /// with the others.
  void check_lost();

  /// Prepares and proves what is not loaded, until `share` of the time is over. With `sample`,
  /// takes a first time of each. Favourites come first and are waited for as long as a final can
  /// follow: small tiles compile faster, and a candidate that has none to beat would win.
  void load(const std::vector<std::size_t>& indices, double share, bool sample);
  /// Remembers how long it took; the first one also prepares the GPU.
  Measurement prove(std::size_t index);
  Racer racer(std::size_t index) const;
  /// Shuffled rounds of loaded ones, whose times they become. False if time was over before.
  bool race(const std::vector<std::size_t>& indices, int rounds, double share);
  /// Takes over what a racer saw.
  void record(std::size_t index, const Racer& racer);
  void fail(std::size_t index, Status status, const std::string& detail);
  void release(std::size_t index);
  /// Releases all but the fastest and those that are in the final anyway.
  void keep_loaded(std::size_t most);
  /// The config of the fastest; "": none works yet.
  std::string fastest() const;

 private:
  void note(std::size_t index);
  void first_sample(std::size_t index);
};

}  // namespace attnforge
