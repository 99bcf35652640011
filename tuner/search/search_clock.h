// search_clock.h - when the parts of a tuning run end, by its limit and the caller's wish to stop.
#pragma once

#include <span>

#include "attnforge/tune.h"
#include "tuner/search/environment.h"

namespace attnforge {

// Shares of the time limit until which candidates are compiled: seeds until the first and, in
// searches that go on from the leaders, their neighbours until the second. The rest is the final's.
inline constexpr double kSeedShare = 0.5, kSearchShare = 0.75;

struct SearchClock {
  const TuneEnvironment& environment;
  const TuneOptions& options;
  double start_s = environment.now_s() - environment.spent_s;  // of the call that has the limit
  double search_start_s = start_s;  // after another process was waited for
  double longest_proof_s = 0;
  bool cancelled = false;
  bool cut = false;  // something planned was left out

  double now_s() const { return environment.now_s(); }
  /// When the caller wants the answer.
  double end_s() const;
  /// When the final is over: the winner is proved once more and stored after it.
  double final_deadline() const;
  /// When `share` of the search's time is over, or earlier if a final of candidates with these
  /// times, fastest first, needs more than what is left after it.
  double search_deadline(double share, std::span<const double> times_us) const;
  /// Asks the caller, too.
  bool is_before(double until_s);
};

}  // namespace attnforge
