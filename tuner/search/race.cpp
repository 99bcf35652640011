#include "tuner/search/race.h"

#include <algorithm>
#include <cmath>

#include "tuner/search/stopping.h"

namespace attnforge {
namespace {

constexpr double kRunUs = 50e3;  // of expected work between two questions to keep_going
constexpr std::size_t kRunSamples = 32;
constexpr double kOverheadUs = 60;  // of a sample: flushing L2
constexpr double kRoundHeatSeconds = 0.1;
constexpr std::size_t kRacersMost = 8;  // of a final

double work_us(const Racer& racer) { return std::max(racer.expected_us, 0.0) + kOverheadUs; }

/// Fisher-Yates; std::shuffle may differ between standard libraries, and a search should not.
void shuffle(std::vector<Racer*>& racers, std::mt19937_64& random) {
  for (std::size_t i = racers.size(); i > 1; --i) std::swap(racers[i - 1], racers[random() % i]);
}

/// asked: the sizes asked for too. Set to false where one of them failed there, which is no failure
/// at the sizes of the bucket, of which is what is stored.
void sample(Evaluator& evaluator, const std::vector<Racer*>& racers, bool& asked) {
  std::vector<Config> order;
  order.reserve(racers.size());
  for (const Racer* racer : racers) order.push_back(racer->config);
  std::vector<double> times_asked;
  if (asked) times_asked = evaluator.sample_us(order, Sizes::kAsked);
  if (evaluator.lost() != nullptr) return;
  const std::vector<double> times = evaluator.sample_us(order, Sizes::kBucket);
  if (evaluator.lost() != nullptr) return;
  const auto is_time = [](double us) { return std::isfinite(us) && us > 0; };
  asked = asked && std::ranges::all_of(times_asked, is_time);
  const double clock_mhz = evaluator.clock_mhz();
  for (std::size_t i = 0; i < racers.size(); ++i) {
    Racer& racer = *racers[i];
    racer.failed_as_asked |= !times_asked.empty() && !is_time(times_asked[i]);
    if (!is_time(times[i])) {
      racer.failed = true;
      continue;
    }
    if (asked) racer.asked.push_back(times_asked[i]);
    racer.samples.push_back(times[i]);
    racer.expected_us = median(racer.samples);
    if (clock_mhz > 0) racer.clock_mhz.push_back(clock_mhz);
  }
}

/// One round over `racers` in runs of bounded length.
bool run_round(Evaluator& evaluator, const std::vector<Racer*>& racers, bool& asked,
               const std::function<bool()>& keep_going) {
  std::vector<Racer*> run;
  double run_us = 0;
  for (std::size_t i = 0; i < racers.size(); ++i) {
    run.push_back(racers[i]);
    run_us += work_us(*racers[i]);
    const bool last = i + 1 == racers.size();
    if (!last && run.size() < kRunSamples && run_us + work_us(*racers[i + 1]) <= kRunUs) continue;
    sample(evaluator, run, asked);
    if (evaluator.lost() != nullptr) return false;
    if (!keep_going()) return false;
    run.clear();
    run_us = 0;
  }
  return true;
}

void drop_failed(std::vector<Racer*>& racers) {
  std::erase_if(racers, [](const Racer* racer) { return racer->failed; });
}

void heat(Evaluator& evaluator, const std::vector<Racer*>& racers) {
  std::vector<Config> configs;
  for (const Racer* racer : racers) configs.push_back(racer->config);
  evaluator.heat(configs);
}

double round_seconds(std::span<const double> time_us) {
  double round_us = 0;
  for (const double each : time_us.first(std::min(time_us.size(), kRacersMost)))
    round_us += each + kOverheadUs;
  return 1e-6 * round_us;
}

}  // namespace

bool run_rounds(Evaluator& evaluator, std::vector<Racer*> racers, int rounds,
                std::mt19937_64& random, const std::function<bool()>& keep_going) {
  drop_failed(racers);
  if (racers.empty()) return true;
  if (!keep_going()) return false;
  heat(evaluator, racers);
  if (evaluator.lost() != nullptr) return false;
  for (int round = 0; round < rounds; ++round) {
    if (!keep_going()) return false;
    shuffle(racers, random);
    bool asked = false;
    if (!run_round(evaluator, racers, asked, keep_going)) return false;
    drop_failed(racers);
  }
  return true;
}

FinalRules final_rules(Rigor rigor) {
  switch (rigor) {
    case Rigor::kQuick:
      return {.min_rounds = 7, .max_rounds = 101, .max_seconds = 0.8};
    case Rigor::kFull:
      return {.min_rounds = 11, .max_rounds = 101, .max_seconds = 3};
    case Rigor::kExhaustive:
      return {.min_rounds = 15, .max_rounds = 201, .max_seconds = 6};
  }
  return {};
}

double final_seconds(Rigor rigor, std::span<const double> time_us, bool asked) {
  const FinalRules rules = final_rules(rigor);
  const int samples = asked && times_as_asked(rules, time_us) ? 2 : 1;
  return kRoundHeatSeconds + samples * round_seconds(time_us) * rules.min_rounds;
}

bool times_as_asked(const FinalRules& rules, std::span<const double> time_us) {
  return 2 * round_seconds(time_us) * rules.min_rounds <= 0.5 * rules.max_seconds;
}

bool run_final(Evaluator& evaluator, const FinalRules& rules, std::vector<Finalist>& finalists,
               std::mt19937_64& random, const std::function<bool()>& keep_going) {
  std::vector<Racer*> running;
  for (Finalist& finalist : finalists) {
    finalist.samples.clear();
    finalist.asked.clear();
    running.push_back(&finalist);
  }
  // One that fails keeps its place, with the samples that it has.
  const auto decided = [&] {
    std::vector<Finalist> healthy = finalists;
    std::erase_if(healthy, [](const Finalist& finalist) { return finalist.failed; });
    if (healthy.empty()) return true;
    const std::size_t first = leader(healthy);
    for (std::size_t i = 0; i < healthy.size(); ++i) {
      if (i != first && standing(healthy[first], healthy[i]) == Standing::kUndecided) return false;
    }
    const StoppingRule rule{.min_samples = static_cast<std::size_t>(rules.min_rounds),
                            .max_samples = static_cast<std::size_t>(rules.max_rounds)};
    return settled(rule, healthy[first].samples);
  };

  heat(evaluator, running);
  if (evaluator.lost() != nullptr) return false;
  double spent_us = 0;
  bool asked = rules.asked;
  for (int round = 0; round < rules.max_rounds; ++round) {
    if (!keep_going()) return false;
    shuffle(running, random);
    const bool whole = run_round(evaluator, running, asked, keep_going);
    if (!asked)
      for (Finalist& finalist : finalists) finalist.asked.clear();
    drop_failed(running);
    if (!whole) {
      // A cut round would pair samples of different rounds.
      for (Finalist& finalist : finalists) {
        finalist.samples.resize(std::min<std::size_t>(finalist.samples.size(), round));
        finalist.asked.resize(std::min<std::size_t>(finalist.asked.size(), round));
      }
      return false;
    }
    if (running.empty()) return true;
    for (const Racer* racer : running)
      spent_us += racer->samples.back() + (asked ? racer->asked.back() : 0);
    if (round + 1 >= rules.min_rounds && (spent_us > 1e6 * rules.max_seconds || decided())) break;
  }
  return true;
}

}  // namespace attnforge
