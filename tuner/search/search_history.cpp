#include "tuner/search/search_history.h"

#include <algorithm>

#include "attnforge/error.h"
#include "attnforge/version.h"
#include "cache/near_problems.h"
#include "tuner/search/search_bench.h"
#include "tuner/search/tune.h"

namespace attnforge {
namespace {

constexpr double kLongestWaitSeconds = 600;  // for another process, when there is no time limit
constexpr double kWaitStepSeconds = 0.05;
constexpr std::size_t kNearWinners = 4;  // of other problems, among the first to be tried

Try blank_try(const SearchHistory& history, const DeviceFacts& device, Rigor rigor) {
  Try blank;
  blank.problem = history.problem;
  blank.device_class = history.device_class;
  blank.rigor = rigor;
  blank.driver = history.environment.driver;
  blank.nvrtc = history.environment.nvrtc;
  blank.uuid = device.uuid;
  blank.attnforge_version = kVersion;
  return blank;
}

}  // namespace

SearchHistory::SearchHistory(const Problem& of, const DeviceFacts& device, Cache& database,
                             Rigor rigor, const TuneEnvironment& world)
    : cache(database),
      environment(world),
      problem(world.stored_as.empty() ? to_string(of) : world.stored_as),
      device_class(attnforge::device_class(device)),
      current{.device_class = device_class,
              .driver = world.driver,
              .nvrtc = world.nvrtc,
              .sm = device.arch.sm},
      journal(cache, environment, blank_try(*this, device, rigor)),
      lease(cache, environment, problem, device_class) {}

void SearchHistory::tick() {
  journal.tick();
  lease.tick();
}

std::optional<Winner> SearchHistory::stored_winner(SearchBench& bench, Rigor at_least) const {
  const auto digest = [&](std::string_view config) {
    const std::size_t index = bench.state.find(config);
    return index == bench.state.size() ? std::string() : bench.digest_of(index);
  };
  std::optional<Winner> winner = cache.best(problem, current, digest, at_least);
  if (!winner || winner->best.estimated ||
      bench.state.find(winner->best.config) == bench.state.size())
    return std::nullopt;
  if (!is_measured(winner->provenance)) return std::nullopt;
  return winner;
}

bool SearchHistory::quick_search_stored(SearchBench& bench) const {
  if (stored_winner(bench, Rigor::kFull)) return true;
  const std::vector<Try> tries = cache.tries(problem, device_class);
  const auto measured = std::count_if(tries.begin(), tries.end(),
                                      [](const Try& each) { return !each.estimated; });
  return static_cast<std::size_t>(measured) >= seeds(bench.candidates, Rigor::kQuick).size();
}

bool SearchHistory::take_lease(SearchBench& bench, const std::function<bool()>& answered) {
  const double limit_s = bench.clock.options.time_limit_s;
  const double share = environment.first_run ? kFirstRunWaitShare : 1;
  const double wait_s = limit_s > 0 ? share * limit_s : kLongestWaitSeconds;
  for (bool said = false; !lease.acquire(); said = true) {
    if (!said)
      log(environment, LogLevel::kInfo, "waiting for the process that tunes \"" + problem + '"');
    if (!bench.alive(bench.clock.start_s + wait_s)) return false;
    environment.sleep_s(kWaitStepSeconds);
    // Many may wait: if each took the lease to see the answer, the last would see it late.
    if (answered()) return false;
  }
  return true;
}

void SearchHistory::find_incumbent(SearchBench& bench) {
  const std::optional<Winner> winner = stored_winner(bench, Rigor::kQuick);
  if (!winner) return;
  incumbent = bench.state.find(winner->best.config);
  incumbent_rigor = winner->rigor.value_or(Rigor::kQuick);
}

void SearchHistory::reuse_tries(SearchBench& bench) const {
  for (const Try& stored : cache.tries(problem, device_class)) {
    const std::size_t index = bench.state.find(stored.config);
    if (stored.estimated || index == bench.state.size() || stored.nvrtc != environment.nvrtc)
      continue;
    const Status status = stored.measurement.status;
    const bool needs_driver = status != Status::kOk && status != Status::kCompileError;
    if (needs_driver && stored.driver != environment.driver) continue;
    if (stored.digest != bench.digest_of(index)) continue;
    Entry& entry = bench.state[index];
    entry.measurement = stored.measurement;
    entry.known = entry.reused = true;
  }
}

void SearchHistory::reuse_winner(SearchBench& bench, const std::string& winner) const {
  Entry& entry = bench.state[bench.state.find(winner)];
  if (entry.known) return;
  for (const Try& stored : cache.tries(problem, device_class)) {
    if (stored.config == winner) entry.measurement = stored.measurement;
  }
  entry.known = entry.reused = true;
}

std::vector<std::size_t> SearchHistory::starting_points(SearchBench& bench,
                                                        const Problem& of) const {
  std::vector<std::size_t> start = seeds(bench.candidates, bench.clock.options.rigor);
  std::size_t added = 0;
  const auto add = [&](std::size_t index) {
    if (std::find(start.begin(), start.end(), index) != start.end()) return;
    start.insert(start.begin() + 1 + static_cast<std::ptrdiff_t>(added++), index);
  };
  if (incumbent) add(*incumbent);
  for (const std::string& config : environment.unsearched) {
    if (const std::size_t index = bench.state.find(config); index != bench.state.size()) add(index);
  }
  std::size_t near = 0;
  for (const Chosen& other : near_winners(of, cache.chosen(device_class))) {
    const std::size_t index = bench.state.find(other.config);
    if (index == bench.state.size()) continue;
    add(index);
    if (++near == kNearWinners) break;
  }
  return start;
}

void SearchHistory::finish(SearchBench& bench, Rigor rigor, const std::string& winner) {
  const std::size_t index = bench.state.find(winner);
  try {
    if (bench.state[index].loaded) bench.evaluator.keep(bench.candidates[index].config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCache) throw;
    log(environment, LogLevel::kWarning,
        std::string("the winner's code is not stored: ") + error.what());
  }
  // A search of one family says nothing of the others, one of which may have won before. A config
  // that beat the winner of a more rigorous search takes its place: plans go by the most rigorous.
  if (bench.clock.options.family.empty())
    journal.finish(std::max(rigor, incumbent_rigor), winner);
  else
    journal.flush();
}

}  // namespace attnforge
