// choices.h - the choices of a search: where it starts, where it looks next, who reaches the final
// and who wins. Pure, so that a search is the same for the same times.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "attnforge/tune.h"
#include "generator/candidates.h"

namespace attnforge {

/// Indices of `candidates` in the order in which they are compiled. The first is
/// candidates.front(), which is the config used when nothing is measured, so that a search cut
/// short has something to compare with.
///   kQuick       12: the model's 6 best of all families, then for each value of each axis the best
///                config that has it (the model may be wrong about a whole axis), then its next;
///                the search adds 8 neighbours of the fastest
///   kFull        48: its 24 best, and so on
///   kExhaustive  all
std::vector<std::size_t> seeds(std::span<const Candidate> candidates, Rigor rigor);

/// Configs of the same family one step away from candidates[of]: for each axis the next smaller and
/// next larger value that is legal with all else equal, and the model's 4 best that move two axes
/// by one step each (axes can be bound to each other: rows of a tile and warps).
std::vector<std::size_t> neighbours(std::span<const Candidate> candidates, std::size_t of);

/// A config in a race, with its samples; samples of the same place in two racers come from the same
/// round.
struct Racer {
  Config config;
  double expected_us = 0;  // decides how many samples are taken between two questions to keep_going
  std::vector<double> samples;    // one a round
  std::vector<double> asked;      // the same of Sizes::kAsked, where a final times those too
  std::vector<double> clock_mhz;  // of the runs in which it was sampled
  bool failed = false;            // a launch failed; no more samples
  bool failed_as_asked = false;   // one of Sizes::kAsked did, which says nothing of the bucket
};

/// A racer of the final.
struct Finalist : Racer {
  std::size_t index = 0;  // among the candidates
  std::string text;       // of the config
  double estimate_us = 0;
  double spread = 1;        // Family::spread(): its times count so many times
  bool incumbent = false;   // the winner that the database has
  bool untuned = false;     // the model's first choice
  bool unsearched = false;  // what the call might have had without a search
  double time_us = 0;       // from before the race: of another moment and another heat
};

/// Whom others must beat.
inline bool is_favourite(const Finalist& finalist) {
  return finalist.incumbent || finalist.untuned;
}

/// Who goes from a field of `time_us` (by place) to the final: the 4 fastest, up to 8 if within 5%
/// of the fastest. Fastest first; ties by place.
std::vector<std::size_t> select_finalists(std::span<const double> time_us);

/// What the rounds so far say of `other` against `leader`, by the ratios of samples of the same
/// round; where the sizes asked for were timed too, by the geometric mean of both ratios. kTied:
/// the 95% interval of the ratios' median ends below 1.005, a difference less than the spread of
/// one kernel between processes. kSlower: it begins above 1.005, or the median is above 1.02.
/// kUndecided: neither, more rounds may tell. With fewer than 6 rounds the two medians decide, and
/// without any the times from before.
enum class Standing { kTied, kSlower, kUndecided };
Standing standing(const Finalist& leader, const Finalist& other);

/// Whether `favourite` falls to the leader. By standing(), but fewer than 6 rounds must all show it
/// slower, by more than 1 / (2 rounds^2): 50% in one round, 6% in each of three. Without rounds its
/// time from before must be more than 50% above the leader's.
bool falls(const Finalist& leader, const Finalist& favourite);

/// Place of the least median, of those with samples if there are such. `finalists` is not empty.
std::size_t leader(std::span<const Finalist> finalists);

/// Place of the winner: of the favourites that do not fall and of the others that are not slower
/// than the leader, the incumbent, else the untuned choice, else the least estimate, else the first
/// text. So noise does not replace a stored winner, and two runs agree. Who failed at the sizes
/// asked for, or is slower there than what the call might have had without a search, is left out
/// before, if that leaves anybody.
std::size_t decide(std::span<const Finalist> all);

}  // namespace attnforge
