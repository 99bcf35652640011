#include "tuner/search/tune.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "attnforge/error.h"
#include "attnforge/version.h"
#include "cache/near_problems.h"
#include "templates/registry.h"
#include "tuner/search/tuning.h"

namespace attnforge {
namespace {

constexpr double kLongestWaitSeconds = 600;  // for another process, when there is no time limit
constexpr double kWaitStepSeconds = 0.05;
constexpr std::size_t kNearWinners = 4;  // of other problems, among the first to be tried
constexpr double kStoreSeconds = 0.05;   // for the end of a search, on a slow disk

}  // namespace

// ---- what earlier runs left ----

Try Tuning::blank_try() const {
  Try blank;
  blank.problem = problem_text_;
  blank.device_class = class_;
  blank.rigor = options_.rigor;
  blank.driver = environment_.driver;
  blank.nvrtc = environment_.nvrtc;
  blank.uuid = device_.uuid;
  blank.attnforge_version = kVersion;
  return blank;
}

Cache::Current Tuning::current() const {
  return {.device_class = class_,
          .driver = environment_.driver,
          .nvrtc = environment_.nvrtc,
          .sm = device_.arch.sm};
}

const std::string& Tuning::digest_of(std::size_t index) {
  Entry& entry = state_[index];
  if (entry.digest.empty()) entry.digest = evaluator_.digest_of(candidates_[index]);
  return entry.digest;
}

/// The config that the database answers with for this GPU class and the templates of today, if it
/// is a candidate.
std::optional<Winner> Tuning::stored_winner(Rigor at_least) {
  const auto digest = [&](std::string_view config) {
    const std::size_t index = state_.find(config);
    return index == state_.size() ? std::string() : digest_of(index);
  };
  std::optional<Winner> winner = cache_.best(problem_text_, current(), digest, at_least);
  if (!winner || winner->best.estimated || state_.find(winner->best.config) == state_.size())
    return std::nullopt;
  if (!is_measured(winner->provenance)) return std::nullopt;
  return winner;
}

/// Whether a search ended that was not cut before it had seen what a quick one sees.
bool Tuning::quick_search_stored() {
  if (stored_winner(Rigor::kFull)) return true;
  const std::vector<Try> tries = cache_.tries(problem_text_, class_);
  const auto measured = std::count_if(tries.begin(), tries.end(),
                                      [](const Try& each) { return !each.estimated; });
  return static_cast<std::size_t>(measured) >= seeds(candidates_, Rigor::kQuick).size();
}

/// False if another process still had the lease when the time to wait was over, or has `answered`.
bool Tuning::take_lease(const std::function<bool()>& answered) {
  const double share = environment_.first_run ? kFirstRunWaitShare : 1;
  const double wait_s = options_.time_limit_s > 0 ? share * options_.time_limit_s
                                                  : kLongestWaitSeconds;
  for (bool said = false; !lease_.acquire(); said = true) {
    if (!said)
      log(environment_, LogLevel::kInfo,
          "waiting for the process that tunes \"" + problem_text_ + '"');
    if (!alive(start_s_ + wait_s)) return false;
    environment_.sleep_s(kWaitStepSeconds);
    // Many may wait: if each took the lease to see the answer, the last would see it late.
    if (answered()) return false;
  }
  return true;
}

/// Good tries stand for the same digest and NVRTC. A failure to compile too; other failures only
/// under the same driver.
void Tuning::reuse_tries() {
  for (const Try& stored : cache_.tries(problem_text_, class_)) {
    const std::size_t index = state_.find(stored.config);
    if (stored.estimated || index == state_.size() || stored.nvrtc != environment_.nvrtc) continue;
    const Status status = stored.measurement.status;
    const bool needs_driver = status != Status::kOk && status != Status::kCompileError;
    if (needs_driver && stored.driver != environment_.driver) continue;
    if (stored.digest != digest_of(index)) continue;
    Entry& entry = state_[index];
    entry.measurement = stored.measurement;
    entry.known = entry.reused = true;
  }
}

/// The seeds; after the first of them this problem's winner so far and a few of problems that are
/// like it, if they are candidates here.
std::vector<std::size_t> Tuning::starting_points() {
  std::vector<std::size_t> start = seeds(candidates_, options_.rigor);
  std::size_t added = 0;
  const auto add = [&](std::size_t index) {
    if (std::find(start.begin(), start.end(), index) != start.end()) return;
    start.insert(start.begin() + 1 + static_cast<std::ptrdiff_t>(added++), index);
  };
  if (incumbent_) add(*incumbent_);
  std::size_t near = 0;
  for (const Chosen& other : near_winners(problem_, cache_.chosen(class_))) {
    const std::size_t index = state_.find(other.config);
    if (index == state_.size()) continue;
    add(index);
    if (++near == kNearWinners) break;
  }
  return start;
}

// ---- time, and the caller's wish to stop ----

/// When the caller wants the answer.
double Tuning::end_s() const {
  if (options_.time_limit_s <= 0) return std::numeric_limits<double>::infinity();
  return start_s_ + (environment_.first_run ? kFirstRunShare : 1) * options_.time_limit_s;
}

/// When the final is over: the winner is proved once more and stored after it.
double Tuning::final_deadline() const { return end_s() - longest_proof_s_ - kStoreSeconds; }

/// When `share` of the time is over that the search has (another process may have had the first
/// part of the limit), or earlier if the final needs more than what is left after it.
double Tuning::search_deadline(double share) const {
  if (options_.time_limit_s <= 0) return end_s();
  std::vector<double> times;
  for (std::size_t index : state_.by_time()) times.push_back(state_[index].measurement.time_us);
  const double whole_s = end_s() - search_start_s_;
  const double final_s = std::min(final_seconds(options_.rigor, times), 0.5 * whole_s);
  return std::min(search_start_s_ + share * whole_s, final_deadline() - final_s);
}

/// Asked all the time: does what must be done from time to time, and says whether to go on.
bool Tuning::alive(double until_s) {
  journal_.tick();
  lease_.tick();
  progress_.state.best_us = state_.best_us();
  progress_.tick();
  if (options_.cancelled && options_.cancelled()) cancelled_ = true;
  return !cancelled_ && evaluator_.lost() == nullptr && environment_.now_s() < until_s;
}

/// After everything else was recorded: puts the culprit's try beside the others and gives up.
void Tuning::check_lost() {
  const Loss* loss = evaluator_.lost();
  if (loss == nullptr) return;
  const std::size_t culprit = state_.find(loss->config);
  if (culprit != state_.size()) {
    state_[culprit].loaded = false;  // nothing can be unloaded any more
    fail(culprit, loss->measurement.status, loss->measurement.detail);
  }
  journal_.flush();
  throw Error(ErrorCode::kCuda, "tuning of \"" + problem_text_ + "\" had to stop: " + loss->advice);
}

TuneResult Tuning::result(const std::string& winner) {
  TuneResult result;
  result.problem = problem_;
  result.winner = winner;
  if (!winner.empty()) result.winner_us = state_[state_.find(winner)].measurement.time_us;
  result.untuned = state_[0].config;
  if (state_[0].known && state_[0].measurement.status == Status::kOk)
    result.untuned_us = state_[0].measurement.time_us;
  result.trials = state_.trials();
  result.tried = static_cast<int>(result.trials.size());
  result.failed = state_.count(
      [](const Entry& e) { return e.known && e.measurement.status != Status::kOk; });
  result.reused = state_.count([](const Entry& e) { return e.reused; });
  result.space = static_cast<int>(state_.size());
  result.left = left_;
  if (measured_ > 0) result.left_s = measure_s_ / measured_ * left_;
  result.complete = !cut_ && !cancelled_;
  result.elapsed_s = environment_.now_s() - start_s_;
  progress_.state.best_us = result.winner_us;
  progress_.state.best_config = winner;
  progress_.state.default_us = result.untuned_us;
  progress_.state.done = progress_.state.total;
  progress_.end();
  return result;
}

/// What a search chose without them is the best of what was tried, but plans should not go by it.
bool Tuning::favourites_known() const {
  return state_[0].known && (!incumbent_ || state_[*incumbent_].known);
}

/// The search counts as finished from here on, and the winner's code is there for plans that may
/// not compile. What one family's search found does not: it says nothing of the others, one of
/// which may have won before. Who was raced against the winner of a more rigorous search and won
/// takes its place: plans go by the most rigorous one.
void Tuning::finish(Rigor rigor, const std::string& winner) {
  const std::size_t index = state_.find(winner);
  try {
    if (state_[index].loaded) evaluator_.keep(candidates_[index].config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCache) throw;
    log(environment_, LogLevel::kWarning,
        std::string("the winner's code is not stored: ") + error.what());
  }
  if (options_.family.empty()) {
    journal_.finish(std::max(rigor, incumbent_rigor_), winner);
  } else {
    journal_.flush();
  }
}

TuneResult Tuning::run() {
  const auto from_database = [&](const std::string& winner) {
    // A plan wants the winner alone, and soon: to look at all tries renders each of them.
    if (!environment_.first_run) reuse_tries();
    // The tie rule made the winner; a try of it that reuse_tries() refuses (another NVRTC) is still
    // the answer.
    Entry& entry = state_[state_.find(winner)];
    if (!entry.known) {
      for (const Try& stored : cache_.tries(problem_text_, class_)) {
        if (stored.config == winner) entry.measurement = stored.measurement;
      }
      entry.known = entry.reused = true;
    }
    return result(winner);
  };
  // A search that its limit cut short counts as a quick one. If every plan that waited for it went
  // on where it ended, each would tune in its turn, and end with a winner of its own.
  const Rigor enough = environment_.first_run ? Rigor::kQuick : options_.rigor;
  std::optional<Winner> known;
  const auto answered = [&] {
    if (!options_.retune) known = stored_winner(enough);
    // A quick one that was cut short goes on where it was, if somebody has the time.
    const bool may_go_on = options_.rigor == Rigor::kQuick && !environment_.first_run;
    if (known && may_go_on && !quick_search_stored()) known.reset();
    return known.has_value();
  };
  if (answered()) return from_database(known->best.config);
  if (!take_lease(answered)) {
    if (known) return from_database(known->best.config);
    reuse_tries();
    cut_ = true;
    const std::vector<std::size_t> order = state_.by_time();
    TuneResult best_so_far = result(order.empty() ? std::string() : state_[order.front()].config);
    best_so_far.other_at_work = !cancelled_;
    return best_so_far;
  }
  // Asked again even if nobody was waited for: another may have ended since the first look.
  if (answered()) return from_database(known->best.config);
  search_start_s_ = std::min(environment_.now_s(), end_s());
  log(environment_, LogLevel::kInfo,
      "tuning \"" + problem_text_ + "\": " + std::to_string(candidates_.size()) + " candidates");

  if (const auto winner = stored_winner(Rigor::kQuick)) {
    incumbent_ = state_.find(winner->best.config);
    incumbent_rigor_ = winner->rigor.value_or(Rigor::kQuick);
  }
  if (!options_.retune) reuse_tries();
  const bool descends = options_.rigor == Rigor::kFull;
  measure(starting_points(), descends ? kSeedShare : kSearchShare);
  if (descends && !cut_ && !cancelled_) descend();

  std::string winner;
  if (!cancelled_) {
    winner = choose(final_race());
  } else {
    const std::vector<std::size_t> order = state_.by_time();
    if (!order.empty()) winner = state_[order.front()].config;
  }

  // A winner that was not timed beside it does not replace the stored one.
  if (cut_ && incumbent_ && !state_[*incumbent_].known) winner = state_[*incumbent_].config;

  TuneResult answer = result(winner);
  if (!winner.empty() && answer.complete) {
    finish(options_.rigor, winner);
  } else if (!winner.empty() && !cancelled_ && (environment_.first_run || favourites_known())) {
    finish(Rigor::kQuick, winner);
  } else {
    journal_.flush();
  }
  answer.not_kept = journal_.failure().empty() ? cache_.not_kept() : journal_.failure();
  return answer;
}

TuneResult tune_problem(const Problem& problem, const DeviceFacts& device, Cache& cache,
                        Evaluator& evaluator, const std::vector<Candidate>& candidates,
                        const TuneOptions& options, const TuneEnvironment& environment) {
  ATTNFORGE_ASSERT(!candidates.empty(),
                   "a problem without candidates is refused before it is tuned");
  return Tuning(problem, device, cache, evaluator, candidates, options, environment).run();
}

}  // namespace attnforge
