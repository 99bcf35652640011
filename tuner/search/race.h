// race.h - times several proved candidates against each other: shuffled rounds, one sample each a
// round, on a warm card.
#pragma once

#include <functional>
#include <random>
#include <span>
#include <vector>

#include "tuner/evaluate.h"
#include "tuner/search/choices.h"

namespace attnforge {

/// Heats the card, then runs `rounds` rounds over the racers that have not failed. Stops between
/// two runs of at most 100 ms when keep_going() says no, or the evaluator is lost; racers may then
/// differ by one sample. Returns false if it stopped.
bool run_rounds(Evaluator& evaluator, std::vector<Racer*> racers, int rounds,
                std::mt19937_64& random, const std::function<bool()>& keep_going);

struct FinalRules {
  int min_rounds = 7;
  int max_rounds = 101;
  double max_seconds = 3;  // of measured kernel time
  bool asked = false;      // each round takes a sample of Sizes::kAsked too
};
FinalRules final_rules(Rigor rigor);

/// What the shortest final of that rigor takes in a field of `time_us` (fastest first), heating
/// included. `asked`: the sizes asked for can be timed.
double final_seconds(Rigor rigor, std::span<const double> time_us, bool asked);

/// Whether a final in that field times the sizes asked for too: not of kernels so slow that the
/// fewest rounds of both would take more than half of the time that the rules let it have. Those
/// fill the GPU many times, so that all problems of a bucket are alike.
bool times_as_asked(const FinalRules& rules, std::span<const double> time_us);

/// Rounds until each finalist is tied with or slower than the leader and the leader's median is
/// settled, or the rules end it. Samples are replaced by those of the final. Returns false if
/// keep_going() or a loss of the evaluator stopped it.
bool run_final(Evaluator& evaluator, const FinalRules& rules, std::vector<Finalist>& finalists,
               std::mt19937_64& random, const std::function<bool()>& keep_going);

}  // namespace attnforge
