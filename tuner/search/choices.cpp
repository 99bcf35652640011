#include "tuner/search/choices.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "attnforge/error.h"
#include "tuner/search/stopping.h"

namespace attnforge {
namespace {

// Half of the seeds are the model's best, half the best of each value: the model's first dozen are
// often one tile with other details. On an H200, over 46 dense problems, the best of twelve quick
// seeds is 0.2% slower than what a full search finds (2.4% at most); of the model's first twelve
// it is 0.6% (8.7%).
constexpr std::size_t kQuickSeeds = 12;
constexpr std::size_t kFullSeeds = 48;
constexpr std::size_t kTwoAxisMoves = 4;
constexpr std::size_t kFinalistsAlways = 4;
constexpr std::size_t kFinalistsMost = 8;
constexpr double kFinalistsWithin = 1.05;
constexpr double
    kTie = 1.005;  // never told apart: less than the spread of one kernel between processes
constexpr double kTieAtMost = 1.02;  // however noisy

/// asked: of both sizes.
double middle_us(const Finalist& finalist, bool asked) {
  const double us = finalist.spread *
                    (finalist.samples.empty() ? finalist.time_us : median(finalist.samples));
  return asked ? std::sqrt(us * median(finalist.asked)) : us;
}
/// other's over the leader's, at sizes that both have times of.
double middle_ratio(const Finalist& leader, const Finalist& other) {
  const bool asked = !leader.asked.empty() && !other.asked.empty();
  return middle_us(other, asked) / middle_us(leader, asked);
}

/// other's over the leader's, by round.
std::vector<double> ratios_of(std::span<const double> leader, std::span<const double> other) {
  std::vector<double> ratios(std::min(leader.size(), other.size()));
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] = other[i] / leader[i];
  return ratios;
}

std::vector<double> ratios_of(const Finalist& leader, const Finalist& other) {
  std::vector<double> ratios = ratios_of(leader.samples, other.samples);
  const std::vector<double> asked = ratios_of(leader.asked, other.asked);
  for (double& ratio : ratios) ratio *= other.spread / leader.spread;
  for (std::size_t i = 0; i < std::min(ratios.size(), asked.size()); ++i)
    ratios[i] = std::sqrt(ratios[i] * asked[i]);
  return ratios;
}

/// The middle of the logarithms: of inverse ratios it is the inverse, so that of two only one is
/// slower.
double middle_of(std::vector<double> ratios) {
  for (double& ratio : ratios) ratio = std::log(ratio);
  return std::exp(median(ratios));
}

/// `otherwise`: the ratio that decides where there are too few for an interval.
Standing standing_of(const std::vector<double>& ratios, double otherwise) {
  const Interval interval = median_interval(ratios);
  if (std::isinf(interval.high)) return otherwise <= kTie ? Standing::kTied : Standing::kSlower;
  if (interval.high <= kTie) return Standing::kTied;
  if (interval.low > kTie || middle_of(ratios) > kTieAtMost) return Standing::kSlower;
  return Standing::kUndecided;
}

bool slower_as_asked(const Finalist& choice, const Finalist& other) {
  const std::vector<double> ratios = ratios_of(choice.asked, other.asked);
  return !ratios.empty() &&
         standing_of(ratios, median(other.asked) / median(choice.asked)) == Standing::kSlower;
}

/// Places of those that may win: all, if each is slower than another, as medians may go round.
std::vector<std::size_t> eligible(std::span<const Finalist> all) {
  std::vector<std::size_t> everybody(all.size()), result;
  std::iota(everybody.begin(), everybody.end(), std::size_t{0});
  std::ranges::copy_if(everybody, std::back_inserter(result), [&](std::size_t place) {
    const Finalist& each = all[place];
    return !each.failed_as_asked && std::ranges::none_of(all, [&](const Finalist& choice) {
      return choice.unsearched && slower_as_asked(choice, each);
    });
  });
  return result.empty() ? everybody : result;
}

/// Indices by estimate, but for the first candidate, which stays first.
std::vector<std::size_t> model_order(std::span<const Candidate> candidates) {
  std::vector<std::size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order.begin() + 1, order.end(), {},
                           [&](std::size_t i) { return candidates[i].estimate_us; });
  return order;
}

/// The first in `order` for each (family, axis, value).
std::vector<std::size_t> best_of_each_value(std::span<const Candidate> candidates,
                                            const std::vector<std::size_t>& order) {
  std::set<std::tuple<std::string, std::size_t, int>> seen;
  std::vector<std::size_t> result;
  for (std::size_t index : order) {
    const Config& config = candidates[index].config;
    bool news = false;
    for (std::size_t axis = 0; axis < config.fields.size(); ++axis) {
      news |= seen.emplace(config.family, axis, config.fields[axis].second).second;
    }
    if (news) result.push_back(index);
  }
  return result;
}

/// Place of each value of each axis among the values that the family's candidates have.
class AxisRanks {
 public:
  AxisRanks(std::span<const Candidate> candidates, const Config& like)
      : ranks_(like.fields.size()) {
    for (const Candidate& candidate : candidates) {
      if (!comparable(candidate.config, like)) continue;
      for (std::size_t axis = 0; axis < ranks_.size(); ++axis)
        ranks_[axis][candidate.config.fields[axis].second] = 0;
    }
    for (auto& axis : ranks_) {
      int rank = 0;
      for (auto& [value, place] : axis) place = rank++;
    }
  }
  static bool comparable(const Config& a, const Config& b) {
    return a.family == b.family && a.fields.size() == b.fields.size();
  }
  int distance(std::size_t axis, int from, int to) const {
    return ranks_[axis].at(to) - ranks_[axis].at(from);
  }

 private:
  std::vector<std::map<int, int>> ranks_;
};

}  // namespace

std::vector<std::size_t> seeds(std::span<const Candidate> candidates, Rigor rigor) {
  if (candidates.empty()) return {};
  const std::vector<std::size_t> order = model_order(candidates);
  const std::size_t most = rigor == Rigor::kQuick  ? kQuickSeeds
                           : rigor == Rigor::kFull ? kFullSeeds
                                                   : order.size();
  const std::size_t best = rigor == Rigor::kExhaustive ? most : most / 2;

  std::vector<std::size_t> result;
  std::set<std::size_t> taken;
  const auto take = [&](const std::vector<std::size_t>& from, std::size_t until) {
    for (std::size_t index : from) {
      if (result.size() >= until) return;
      if (taken.insert(index).second) result.push_back(index);
    }
  };
  take(order, best);
  take(best_of_each_value(candidates, order), most);
  take(order, most);
  return result;
}

std::vector<std::size_t> neighbours(std::span<const Candidate> candidates, std::size_t of) {
  const Config& origin = candidates[of].config;
  const AxisRanks ranks(candidates, origin);
  struct Step {
    std::size_t index = 0;
    int distance = 0;
  };
  std::map<std::pair<std::size_t, bool>, Step> nearest;  // by axis and direction
  std::vector<std::size_t> two_axes;
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    const Config& config = candidates[index].config;
    if (index == of || !AxisRanks::comparable(config, origin)) continue;
    std::vector<std::pair<std::size_t, int>> moves;  // axis, signed distance
    for (std::size_t axis = 0; axis < config.fields.size() && moves.size() <= 2; ++axis) {
      const int from = origin.fields[axis].second, to = config.fields[axis].second;
      if (from != to) moves.emplace_back(axis, ranks.distance(axis, from, to));
    }
    if (moves.size() == 1) {
      const auto [axis, distance] = moves.front();
      Step& step = nearest[{axis, distance > 0}];
      if (step.distance == 0 || std::abs(distance) < step.distance)
        step = {index, std::abs(distance)};
    } else if (moves.size() == 2 && std::abs(moves[0].second) == 1 &&
               std::abs(moves[1].second) == 1) {
      two_axes.push_back(index);
    }
  }
  std::vector<std::size_t> result;
  for (const auto& [direction, step] : nearest) result.push_back(step.index);
  std::ranges::stable_sort(two_axes, {}, [&](std::size_t i) { return candidates[i].estimate_us; });
  two_axes.resize(std::min(two_axes.size(), kTwoAxisMoves));
  result.insert(result.end(), two_axes.begin(), two_axes.end());
  return result;
}

std::vector<std::size_t> select_finalists(std::span<const double> time_us) {
  std::vector<std::size_t> order(time_us.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return time_us[i]; });
  std::size_t count = std::min(order.size(), kFinalistsAlways);
  while (count < std::min(order.size(), kFinalistsMost) &&
         time_us[order[count]] <= kFinalistsWithin * time_us[order[0]]) {
    ++count;
  }
  order.resize(count);
  return order;
}

Standing standing(const Finalist& leader, const Finalist& other) {
  return standing_of(ratios_of(leader, other), middle_ratio(leader, other));
}

bool falls(const Finalist& leader, const Finalist& favourite) {
  std::vector<double> ratios = ratios_of(leader, favourite);
  if (!std::isinf(median_interval(ratios).high))
    return standing(leader, favourite) == Standing::kSlower;
  if (ratios.empty()) ratios = {middle_ratio(leader, favourite)};
  const double rounds = static_cast<double>(ratios.size());
  return *std::min_element(ratios.begin(), ratios.end()) > 1 + 0.5 / (rounds * rounds);
}

std::size_t leader(std::span<const Finalist> finalists) {
  ATTNFORGE_ASSERT(!finalists.empty(), "a final needs somebody in it");
  const auto best = std::ranges::min_element(finalists, {}, [](const Finalist& f) {
    return std::pair(f.samples.empty(), middle_us(f, !f.asked.empty()));
  });
  return static_cast<std::size_t>(best - finalists.begin());
}

std::size_t decide(std::span<const Finalist> all) {
  std::vector<Finalist> finalists;
  const std::vector<std::size_t> places = eligible(all);
  for (std::size_t place : places) finalists.push_back(all[place]);
  const std::size_t fastest = leader(finalists);
  std::vector<std::size_t> ties;
  for (std::size_t i = 0; i < finalists.size(); ++i) {
    const bool behind = is_favourite(finalists[i])
                            ? falls(finalists[fastest], finalists[i])
                            : standing(finalists[fastest], finalists[i]) == Standing::kSlower;
    if (i == fastest || !behind) ties.push_back(i);
  }
  const auto key = [&](std::size_t i) {
    const Finalist& f = finalists[i];
    return std::tuple(!f.incumbent, !f.untuned, f.estimate_us, std::string_view(f.text));
  };
  return places[*std::ranges::min_element(ties, {}, key)];
}

}  // namespace attnforge
