#include "tuner/search/search_state.h"

#include <algorithm>

#include "tuner/search/stopping.h"

namespace attnforge {

SearchState::SearchState(const std::vector<Candidate>& candidates)
    : candidates_(candidates), entries_(candidates.size()) {
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    entries_[i].config = to_string(candidates[i].config);
    index_.emplace(entries_[i].config, i);
  }
}

std::size_t SearchState::find(std::string_view config) const {
  const auto it = index_.find(std::string(config));
  return it == index_.end() ? entries_.size() : it->second;
}

std::vector<std::size_t> SearchState::by_time() const {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].known && entries_[i].measurement.status == Status::kOk) order.push_back(i);
  }
  std::ranges::stable_sort(order, {},
                           [&](std::size_t i) { return entries_[i].measurement.time_us; });
  return order;
}

double SearchState::best_us() const {
  double best = 0;
  for (const Entry& entry : entries_) {
    if (!entry.known || entry.measurement.status != Status::kOk) continue;
    if (best == 0 || entry.measurement.time_us < best) best = entry.measurement.time_us;
  }
  return best;
}

int SearchState::count(bool (*of)(const Entry&)) const {
  return static_cast<int>(std::count_if(entries_.begin(), entries_.end(), of));
}

std::vector<Trial> SearchState::trials() const {
  std::vector<Trial> result;
  const auto add = [&](std::size_t i) {
    result.push_back({entries_[i].config, candidates_[i].estimate_us, entries_[i].measurement});
  };
  for (std::size_t i : by_time()) add(i);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].known && entries_[i].measurement.status != Status::kOk) add(i);
  }
  return result;
}

void set_times(Measurement& measurement, const Racer& racer) {
  if (racer.samples.empty()) return;
  measurement.time_us = median(racer.samples);
  measurement.noise = relative_iqr(racer.samples);
  measurement.samples = static_cast<int>(racer.samples.size());
  measurement.clock_mhz = racer.clock_mhz.empty() ? 0 : median(racer.clock_mhz);
}

}  // namespace attnforge
