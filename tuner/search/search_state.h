// search_state.h - what a search knows of each candidate so far: measurements of this run and of
// earlier ones.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "attnforge/tune.h"
#include "generator/candidates.h"
#include "tuner/search/race.h"

namespace attnforge {

struct Entry {
  std::string config;       // text form
  std::string digest;       // "" until asked
  Measurement measurement;  // of use only if known
  bool known = false;       // has a status, and a time if that is kOk
  bool reused = false;      // from the database, not timed again in this run
  bool loaded = false;      // in the evaluator, proved
};

class SearchState {
 public:
  /// Borrows `candidates`.
  explicit SearchState(const std::vector<Candidate>& candidates);

  Entry& operator[](std::size_t index) { return entries_[index]; }
  const Entry& operator[](std::size_t index) const { return entries_[index]; }
  std::size_t size() const { return entries_.size(); }
  const Candidate& candidate(std::size_t index) const { return candidates_[index]; }
  /// size() when there is none of that text.
  std::size_t find(std::string_view config) const;

  /// Known good ones, fastest first; ties in the order of the candidates.
  std::vector<std::size_t> by_time() const;
  /// The time of the fastest; 0: none yet.
  double best_us() const;
  int count(bool (*of)(const Entry&)) const;
  /// Known ones as trials, best first, failures last.
  std::vector<Trial> trials() const;

 private:
  const std::vector<Candidate>& candidates_;
  std::vector<Entry> entries_;
  std::unordered_map<std::string, std::size_t> index_;
};

/// Puts the samples of a race into a measurement: median, noise, clock. Does nothing without
/// samples.
void set_times(Measurement& measurement, const Racer& racer);

}  // namespace attnforge
