// search_history.h - a problem's tries and winner in the database: what earlier searches left, and
// what this one leaves.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/cache.h"
#include "generator/arch.h"
#include "tuner/search/journal.h"

namespace attnforge {

struct SearchBench;

struct SearchHistory {
  Cache& cache;
  const TuneEnvironment& environment;
  std::string problem, device_class;  // keys of its tries
  Cache::Current current;             // of today
  Journal journal;
  Lease lease;
  std::optional<std::size_t> incumbent{};  // the stored winner among the candidates
  Rigor incumbent_rigor = Rigor::kQuick;   // of the search that it won

  /// Borrows `cache` and `environment`.
  SearchHistory(const Problem& problem, const DeviceFacts& device, Cache& cache, Rigor rigor,
                const TuneEnvironment& environment);

  void tick();
  /// The config that the database answers with for this GPU class and the templates of today, if it
  /// is a candidate.
  std::optional<Winner> stored_winner(SearchBench& bench, Rigor at_least) const;
  /// Whether a search ended that was not cut before it had seen what a quick one sees.
  bool quick_search_stored(SearchBench& bench) const;
  /// False if another process still had the lease when the time to wait was over, or has
  /// `answered`.
  bool take_lease(SearchBench& bench, const std::function<bool()>& answered);
  void find_incumbent(SearchBench& bench);
  /// Good tries stand for the same digest and NVRTC. A failure to compile too; other failures only
  /// under the same driver.
  void reuse_tries(SearchBench& bench) const;
  /// Takes over the stored try of a winner, whatever its NVRTC: it is the answer.
  void reuse_winner(SearchBench& bench, const std::string& winner) const;
  /// The seeds; after the first of them this problem's winner so far and a few of problems that are
  /// like it, if they are candidates here.
  std::vector<std::size_t> starting_points(SearchBench& bench, const Problem& problem) const;
  /// The search counts as finished from here on, and the winner's code is there for plans that may
  /// not compile.
  void finish(SearchBench& bench, Rigor rigor, const std::string& winner);
};

}  // namespace attnforge
