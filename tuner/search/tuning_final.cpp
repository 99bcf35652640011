#include <algorithm>

#include "tuner/search/tuning.h"

namespace attnforge {
namespace {

constexpr int kFirstFinalRounds = 3;
constexpr double kContender = 1.15;  // times the best: may enter the halving
constexpr std::size_t kContendersLeast = 8, kContendersMost = 32;

}  // namespace

/// Loaded ones near the best, halved in rounds until about 8 are left; fastest first.
std::vector<std::size_t> Tuning::contenders() {
  std::vector<std::size_t> order = state_.by_time();
  std::size_t count = std::min(order.size(), kContendersLeast);
  while (count < std::min(order.size(), kContendersMost) &&
         state_[order[count]].measurement.time_us <= kContender * state_.best_us()) {
    ++count;
  }
  for (std::size_t i = count; i < order.size(); ++i) {
    if (favourite(order[i]) &&
        state_[order[i]].measurement.time_us <= kHopeless * state_.best_us()) {
      order[count++] = order[i];
    }
  }
  order.resize(count);
  load(order, 1.0, false);
  std::erase_if(order, [&](std::size_t index) { return !state_[index].loaded; });

  int rounds = kFirstFinalRounds;
  while (order.size() > kContendersLeast) {
    std::vector<Racer> racers;
    for (std::size_t index : order) racers.push_back(racer(index));
    std::vector<Racer*> pointers;
    for (Racer& racer : racers) pointers.push_back(&racer);
    const bool whole = run_rounds(evaluator_, pointers, rounds, random_,
                                  [&] { return alive(search_deadline(1.0)); });
    for (std::size_t i = 0; i < order.size(); ++i) record(order[i], racers[i]);
    check_lost();
    std::erase_if(order, [&](std::size_t index) { return !state_[index].loaded; });
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return state_[a].measurement.time_us < state_[b].measurement.time_us;
    });
    if (!whole) break;
    const std::size_t keep = std::max(kContendersLeast, order.size() / 2);
    for (std::size_t i = order.size(); i-- > keep;) {
      if (!favourite(order[i])) order.erase(order.begin() + static_cast<std::ptrdiff_t>(i));
    }
    if (order.size() <= keep + 2) {
      if (keep == kContendersLeast) break;  // what is over are favourites
    }
    rounds += 2;
  }
  return order;
}

Finalist Tuning::finalist(std::size_t index) const {
  Finalist result;
  result.index = index;
  result.config = state_[index].config;
  result.estimate_us = candidates_[index].estimate_us;
  result.incumbent = index == incumbent_;
  result.untuned = index == 0;
  result.time_us = state_[index].measurement.time_us;
  return result;
}

/// Races the best. Favourites that could not be in it, since time was over before they were loaded,
/// come without samples.
std::vector<Finalist> Tuning::final_race() {
  const std::vector<std::size_t> order = contenders();
  std::vector<double> times;
  for (std::size_t index : order) times.push_back(state_[index].measurement.time_us);
  std::vector<std::size_t> places = select_finalists(times);
  for (std::size_t place = 0; place < order.size(); ++place) {
    if (favourite(order[place]) && std::find(places.begin(), places.end(), place) == places.end())
      places.push_back(place);
  }

  std::vector<Finalist> finalists;
  std::vector<Racer> racers;
  for (std::size_t place : places) {
    finalists.push_back(finalist(order[place]));
    racers.push_back(racer(order[place]));
  }
  if (!finalists.empty()) {
    progress_.enter(Progress::Phase::kFinal, static_cast<int>(finalists.size()));
    const bool whole = run_final(evaluator_, final_rules(options_.rigor), racers, finalists,
                                 random_, [&] { return alive(final_deadline()); });
    cut_ |= !whole;
    for (std::size_t i = 0; i < finalists.size(); ++i) record(finalists[i].index, racers[i]);
    check_lost();
  }
  const std::vector<std::size_t> known = state_.by_time();
  for (std::size_t index : known) {
    const auto same = [&](const Finalist& f) { return f.index == index; };
    if (std::any_of(finalists.begin(), finalists.end(), same)) continue;
    if (favourite(index) || (index == known.front() && racers.empty()))
      finalists.push_back(finalist(index));
  }
  std::erase_if(finalists, [&](const Finalist& f) {
    return state_[f.index].measurement.status != Status::kOk;
  });
  return finalists;
}

/// The winner, proved once more: a race condition may have passed the first proof. "" when none is
/// left.
std::string Tuning::choose(std::vector<Finalist> finalists) {
  while (!finalists.empty()) {
    const std::size_t place = decide(finalists);
    const std::size_t index = finalists[place].index;
    if (cancelled_ || !state_[index].loaded) return state_[index].config;
    const Measurement again = prove(index);
    check_lost();
    if (again.status == Status::kOk) return state_[index].config;
    fail(index, again.status, "proved once, then not: " + again.detail);
    finalists.erase(finalists.begin() + static_cast<std::ptrdiff_t>(place));
  }
  const std::vector<std::size_t> order = state_.by_time();
  return order.empty() ? std::string() : state_[order.front()].config;
}

}  // namespace attnforge
