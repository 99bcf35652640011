#include "tuner/search/final.h"

#include <algorithm>

namespace attnforge {
namespace {

constexpr int kFirstFinalRounds = 3;
constexpr double kContender = 1.15;  // times the best: may enter the halving
constexpr std::size_t kContendersLeast = 8, kContendersMost = 32;

/// Loaded ones near the best, halved in rounds until about 8 are left; fastest first.
std::vector<std::size_t> contenders(SearchBench& bench) {
  const SearchState& state = bench.state;
  std::vector<std::size_t> order = state.by_time();
  std::size_t count = std::min(order.size(), kContendersLeast);
  while (count < std::min(order.size(), kContendersMost) &&
         state[order[count]].measurement.time_us <= kContender * state.best_us()) {
    ++count;
  }
  for (std::size_t i = count; i < order.size(); ++i) {
    if (bench.is_in_final(order[i]) &&
        state[order[i]].measurement.time_us <= kHopeless * state.best_us()) {
      order[count++] = order[i];
    }
  }
  order.resize(count);
  bench.load(order, 1.0, false);
  std::erase_if(order, [&](std::size_t index) { return !state[index].loaded; });

  int rounds = kFirstFinalRounds;
  while (order.size() > kContendersLeast) {
    const bool whole = bench.race(order, rounds, 1.0);
    std::erase_if(order, [&](std::size_t index) { return !state[index].loaded; });
    std::ranges::stable_sort(order, {},
                             [&](std::size_t i) { return state[i].measurement.time_us; });
    if (!whole) break;
    const std::size_t keep = std::max(kContendersLeast, order.size() / 2);
    for (std::size_t i = order.size(); i-- > keep;) {
      if (!bench.is_in_final(order[i])) order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (keep == kContendersLeast) break;  // what is over is in the final anyway
    rounds += 2;
  }
  return order;
}

Finalist finalist(const SearchBench& bench, std::size_t index) {
  Finalist result{bench.racer(index), index, bench.state[index].config};
  result.estimate_us = bench.candidates[index].estimate_us;
  result.spread = bench.candidates[index].spread;
  result.incumbent = index == bench.history.incumbent;
  result.untuned = index == 0;
  result.unsearched = bench.is_unsearched(index);
  result.time_us = bench.state[index].measurement.time_us;
  return result;
}

/// Races the best. Favourites that could not be in it, since time was over before they were loaded,
/// come without samples.
std::vector<Finalist> final_race(SearchBench& bench) {
  const SearchState& state = bench.state;
  const std::vector<std::size_t> order = contenders(bench);
  std::vector<double> times;
  for (std::size_t index : order) times.push_back(state[index].measurement.time_us);
  std::vector<std::size_t> places = select_finalists(times);
  for (std::size_t place = 0; place < order.size(); ++place) {
    if (bench.is_in_final(order[place]) &&
        std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  }

  std::vector<Finalist> finalists;
  for (std::size_t place : places) finalists.push_back(finalist(bench, order[place]));
  const bool any = !finalists.empty();
  if (any) {
    SearchClock& clock = bench.clock;
    bench.progress.enter(Progress::Phase::kFinal, static_cast<int>(finalists.size()));
    FinalRules rules = final_rules(clock.options.rigor);
    rules.asked = clock.environment.times_asked && times_as_asked(rules, times);
    const bool whole = run_final(bench.evaluator, rules, finalists, bench.random,
                                 [&] { return bench.alive(clock.final_deadline()); });
    clock.cut |= !whole;
    for (const Finalist& each : finalists) bench.record(each.index, each);
    bench.check_lost();
  }
  const std::vector<std::size_t> known = state.by_time();
  for (std::size_t index : known) {
    const auto same = [&](const Finalist& f) { return f.index == index; };
    if (std::any_of(finalists.begin(), finalists.end(), same)) continue;
    if (bench.is_favourite(index) || (index == known.front() && !any))
      finalists.push_back(finalist(bench, index));
  }
  std::erase_if(finalists, [&](const Finalist& f) {
    return state[f.index].measurement.status != Status::kOk;
  });
  return finalists;
}

}  // namespace

std::string winner_of_final(SearchBench& bench) {
  std::vector<Finalist> finalists = final_race(bench);
  while (!finalists.empty()) {
    const std::size_t place = decide(finalists);
    const std::size_t index = finalists[place].index;
    if (bench.clock.cancelled || !bench.state[index].loaded) return bench.state[index].config;
    const Measurement again = bench.prove(index);
    bench.check_lost();
    if (again.status == Status::kOk) return bench.state[index].config;
    bench.fail(index, again.status, "proved once, then not: " + again.detail);
    finalists.erase(finalists.begin() + static_cast<std::ptrdiff_t>(place));
  }
  return bench.fastest();
}

}  // namespace attnforge
