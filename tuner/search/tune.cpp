#include "tuner/search/tune.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>

#include "attnforge/error.h"
#include "tuner/search/descent.h"
#include "tuner/search/final.h"

namespace attnforge {
namespace {

/// `environment` with its empty clock functions filled in.
TuneEnvironment with_clock(TuneEnvironment environment) {
  using Seconds = std::chrono::duration<double>;
  if (!environment.now_s)
    environment.now_s = [] {
      return Seconds(std::chrono::steady_clock::now().time_since_epoch()).count();
    };
  if (!environment.sleep_s)
    environment.sleep_s = [](double seconds) { std::this_thread::sleep_for(Seconds(seconds)); };
  return environment;
}

TuneResult result_of(SearchBench& bench, const Tally& tally, const Problem& problem,
                     const std::string& winner) {
  const SearchState& state = bench.state;
  TuneResult result;
  result.problem = problem;
  result.winner = winner;
  if (!winner.empty()) result.winner_us = state[state.find(winner)].measurement.time_us;
  result.untuned = state[0].config;
  if (state[0].known && state[0].measurement.status == Status::kOk)
    result.untuned_us = state[0].measurement.time_us;
  result.trials = state.trials();
  result.tried = static_cast<int>(result.trials.size());
  result.failed = state.count(
      [](const Entry& e) { return e.known && e.measurement.status != Status::kOk; });
  result.reused = state.count([](const Entry& e) { return e.reused; });
  result.space = static_cast<int>(state.size());
  result.left = tally.left;
  if (tally.measured > 0) result.left_s = tally.measure_s / tally.measured * tally.left;
  result.complete = !bench.clock.cut && !bench.clock.cancelled;
  result.elapsed_s = bench.clock.now_s() - bench.clock.start_s;
  Progress& progress = bench.progress.state;
  progress.best_us = result.winner_us;
  progress.best_config = winner;
  progress.default_us = result.untuned_us;
  progress.done = progress.total;
  bench.progress.end();
  return result;
}

/// Stores how the search ended. One that was cut counts as a quick one if it timed its favourites:
/// what it chose without them is the best of what was tried, but plans should not go by it.
void store(SearchBench& bench, const std::string& winner, bool complete) {
  SearchHistory& history = bench.history;
  const bool favourites_known = bench.state[0].known &&
                                (!history.incumbent || bench.state[*history.incumbent].known);
  if (!winner.empty() && complete)
    history.finish(bench, bench.clock.options.rigor, winner);
  else if (!winner.empty() && !bench.clock.cancelled &&
           (history.environment.first_run || favourites_known))
    history.finish(bench, Rigor::kQuick, winner);
  else
    history.journal.flush();
}

TuneResult run(SearchBench& bench, const Problem& problem) {
  SearchClock& clock = bench.clock;
  SearchHistory& history = bench.history;
  const TuneOptions& options = clock.options;
  const bool first_run = clock.environment.first_run;
  Tally tally;

  // ---- 1. What earlier searches left ----
  // A search that its limit cut short counts as a quick one. If every plan that waited for it went
  // on where it ended, each would tune in its turn, and end with a winner of its own.
  const Rigor enough = first_run ? Rigor::kQuick : options.rigor;
  std::optional<Winner> known;
  const auto answered = [&] {
    if (!options.retune) known = history.stored_winner(bench, enough);
    // A quick one that was cut short goes on where it was, if there is time.
    const bool may_go_on = options.rigor == Rigor::kQuick && !first_run;
    if (known && may_go_on && !history.quick_search_stored(bench)) known.reset();
    return known.has_value();
  };
  const auto from_database = [&] {
    // A plan wants the winner alone, and soon: to look at all tries renders each of them.
    if (!first_run) history.reuse_tries(bench);
    history.reuse_winner(bench, known->best.config);
    return result_of(bench, tally, problem, known->best.config);
  };
  if (answered()) return from_database();
  if (!history.take_lease(bench, answered)) {
    if (known) return from_database();
    history.reuse_tries(bench);
    clock.cut = true;
    TuneResult best_so_far = result_of(bench, tally, problem, bench.fastest());
    best_so_far.other_at_work = !clock.cancelled;
    return best_so_far;
  }
  // Asked again even if no process was waited for: another may have ended since the first look.
  if (answered()) return from_database();
  clock.search_start_s = std::min(clock.now_s(), clock.end_s());
  log(clock.environment, LogLevel::kInfo,
      "tuning \"" + history.problem + "\": " + std::to_string(bench.candidates.size()) +
          " candidates" + (clock.environment.times_asked ? ", timed as asked too" : ""));
  history.find_incumbent(bench);
  if (!options.retune) history.reuse_tries(bench);

  // ---- 2. Seeds, and from the leaders to their neighbours ----
  const bool descends = options.rigor == Rigor::kFull;
  measure(bench, tally, history.starting_points(bench, problem),
          descends ? kSeedShare : kSearchShare);
  if (descends && !clock.cut && !clock.cancelled) descend(bench, tally);
  if (options.rigor == Rigor::kQuick && !clock.cut && !clock.cancelled) look_around(bench, tally);

  // ---- 3. The final ----
  std::string winner = clock.cancelled ? bench.fastest() : winner_of_final(bench);
  // A winner that was not timed beside it does not replace the stored one.
  if (clock.cut && history.incumbent && !bench.state[*history.incumbent].known)
    winner = bench.state[*history.incumbent].config;

  // ---- 4. What this search leaves ----
  TuneResult answer = result_of(bench, tally, problem, winner);
  store(bench, winner, answer.complete);
  const std::string& failure = history.journal.failure();
  answer.not_kept = failure.empty() ? history.cache.not_kept() : failure;
  return answer;
}

}  // namespace

TuneResult tune_problem(const Problem& problem, const DeviceFacts& device, Cache& cache,
                        Evaluator& evaluator, const std::vector<Candidate>& candidates,
                        const TuneOptions& options, const TuneEnvironment& environment) {
  ATTNFORGE_ASSERT(!candidates.empty(),
                   "a problem without candidates is refused before it is tuned");
  const TuneEnvironment world = with_clock(environment);
  SearchClock clock{world, options};
  SearchHistory history(problem, device, cache, options.rigor, world);
  ProgressReporter progress(options.on_progress, world, clock.start_s, options.time_limit_s);
  SearchBench bench{evaluator, candidates, clock, history, progress, std::mt19937_64(options.seed)};
  return run(bench, problem);
}

}  // namespace attnforge
