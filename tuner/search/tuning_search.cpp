#include <algorithm>
#include <set>

#include "tuner/search/tuning.h"

namespace attnforge {
namespace {

constexpr std::size_t
    kBatch = 64;  // prepared at a time; bounds the kernels that are loaded at once
constexpr std::size_t kLoadedMost = 32;  // fastest ones that stay loaded between batches
constexpr int kFirstRounds = 3;          // for every proved candidate
constexpr std::size_t kDescentLeaders = 4, kDescentStep = 24;
constexpr int kDescentPatience = 2;  // steps without progress
constexpr double kProgress = 0.995;

}  // namespace

Racer Tuning::racer(std::size_t index) const {
  Racer result;
  result.config = candidates_[index].config;
  result.expected_us = state_[index].measurement.time_us;
  return result;
}

void Tuning::note(std::size_t index) {
  const Entry& entry = state_[index];
  journal_.note(entry.config, candidates_[index].config.family, digest_of(index),
                candidates_[index].estimate_us, entry.measurement);
}

void Tuning::fail(std::size_t index, Status status, const std::string& detail) {
  Entry& entry = state_[index];
  entry.measurement.status = status;
  entry.measurement.time_us = 0;
  entry.measurement.detail = detail;
  entry.known = true;
  ++progress_.state.failed;
  note(index);
  if (entry.loaded) evaluator_.release(candidates_[index].config);
  entry.loaded = false;
}

/// Takes over what a racer saw.
void Tuning::record(std::size_t index, const Racer& racer) {
  if (racer.failed) {
    fail(index, Status::kLaunchError, "a launch failed while it was timed");
    return;
  }
  if (racer.samples.empty()) return;
  Entry& entry = state_[index];
  set_times(entry.measurement, racer);
  entry.known = true;
  note(index);
  if (progress_.state.best_us == 0 || entry.measurement.time_us <= state_.best_us()) {
    progress_.state.best_us = entry.measurement.time_us;
    progress_.state.best_config = entry.config;
  }
  if (index == 0) progress_.state.default_us = entry.measurement.time_us;
}

/// A time at once, while others compile: nothing is lost when the run is killed, and hopeless ones
/// are seen.
void Tuning::first_sample(std::size_t index) {
  Racer alone = racer(index);
  const double best_us = state_.best_us();
  const double rough_us = state_[index].measurement.time_us;  // of the proof's launch
  const bool slow = rough_us > 20e3 || (best_us > 0 && rough_us > 2 * best_us);
  const std::vector<Config> order(slow ? 1 : kFirstRounds, alone.config);
  if (rough_us > 100e3) {
    alone.samples = {rough_us};
  } else {
    const std::vector<double> times = evaluator_.sample_us(order);
    if (evaluator_.lost() != nullptr) return;
    for (double time_us : times) {
      if (time_us > 0) alone.samples.push_back(time_us);
    }
    alone.failed = alone.samples.size() < order.size();
    if (evaluator_.clock_mhz() > 0) alone.clock_mhz = {evaluator_.clock_mhz()};
  }
  record(index, alone);
}

/// Remembers how long it took; the first one also prepares the GPU.
Measurement Tuning::prove(std::size_t index) {
  const double before_s = environment_.now_s();
  const Measurement measurement = evaluator_.prove(candidates_[index].config);
  const double two_runs_s = 2e-6 * measurement.time_us;
  const double proof_s = proofs_++ == 0 ? two_runs_s : environment_.now_s() - before_s;
  longest_proof_s_ = std::max(longest_proof_s_, proof_s);
  return measurement;
}

/// Prepares and proves what is not loaded, until `share` of the time is over. With `sample`, takes
/// a first time of each. Favourites come first and are waited for as long as a final can follow:
/// small tiles compile faster, and whoever has nobody to beat would win.
void Tuning::load(const std::vector<std::size_t>& indices, double share, bool sample) {
  std::vector<std::size_t> missing;
  for (std::size_t index : indices) {
    if (state_[index].loaded) continue;
    digest_of(index);
    missing.push_back(index);
  }
  if (missing.empty()) return;
  std::stable_partition(missing.begin(), missing.end(),
                        [&](std::size_t index) { return favourite(index); });
  std::vector<Candidate> batch;
  for (std::size_t index : missing) batch.push_back(candidates_[index]);
  auto awaited = std::count_if(missing.begin(), missing.end(),
                               [&](std::size_t index) { return favourite(index); });
  std::vector<std::size_t> proved;  // before the favourites were, and not yet timed
  std::size_t seen = 0;
  const auto keep_going = [&] {
    if (awaited > 0) return alive(search_deadline(1.0) - longest_proof_s_);
    // Something must work before time is up, however slow the compiler.
    return alive(search_deadline(state_.best_us() > 0 ? share : std::max(share, kSearchShare)));
  };
  evaluator_.prepare(batch, keep_going, [&](std::size_t i, const Measurement& prepared) {
    const std::size_t index = missing[i];
    Entry& entry = state_[index];
    ++seen;
    ++progress_.state.done;
    if (evaluator_.lost() != nullptr) return;
    Measurement measurement = prepared;
    // Two runs that would not end in time, as the model has it, are not begun.
    const double two_runs_s = 2e-6 * candidates_[index].estimate_us;
    const bool something_works = state_.best_us() > 0 || !proved.empty();
    if (measurement.status == Status::kOk && something_works &&
        environment_.now_s() + two_runs_s > final_deadline()) {
      evaluator_.release(candidates_[index].config);
      cut_ = true;
      return;
    }
    if (measurement.status == Status::kOk) {
      entry.loaded = true;
      measurement = prove(index);
      if (evaluator_.lost() != nullptr) return;  // check_lost() records it
    }
    if (measurement.status != Status::kOk) {
      entry.measurement = measurement;
      fail(index, measurement.status, measurement.detail);
    } else if (sample) {
      entry.measurement = measurement;
      proved.push_back(index);
    }
    if (favourite(index)) --awaited;
    if (awaited > 0) return;
    for (std::size_t each : proved) {
      if (evaluator_.lost() == nullptr) first_sample(each);
    }
    proved.clear();
  });
  check_lost();
  cut_ |= seen < batch.size();
  // Time was over before a favourite was compiled. A time of the others would make one of them what
  // plans run, although nobody knows that it is faster.
  for (std::size_t index : proved) {
    evaluator_.release(candidates_[index].config);
    state_[index].loaded = false;
  }
}

/// The batch's hopeful ones and the best so far, in shuffled rounds.
void Tuning::first_rounds(const std::vector<std::size_t>& indices, double share) {
  const std::vector<std::size_t> order = state_.by_time();
  if (order.empty()) return;
  std::vector<std::size_t> hopeful;
  for (std::size_t index : indices) {
    const Entry& entry = state_[index];
    const bool good = entry.loaded && entry.known && entry.measurement.status == Status::kOk;
    if (good && entry.measurement.time_us <= kHopeless * state_.best_us()) hopeful.push_back(index);
  }
  const std::size_t best = order.front();
  if (state_[best].loaded && std::find(hopeful.begin(), hopeful.end(), best) == hopeful.end())
    hopeful.push_back(best);
  if (hopeful.size() < 2) return;

  std::vector<Racer> racers;
  for (std::size_t index : hopeful) racers.push_back(racer(index));
  std::vector<Racer*> pointers;
  for (Racer& racer : racers) pointers.push_back(&racer);
  progress_.enter(Progress::Phase::kMeasure, static_cast<int>(hopeful.size()));
  run_rounds(evaluator_, pointers, kFirstRounds, random_,
             [&] { return alive(search_deadline(share)); });
  for (std::size_t i = 0; i < hopeful.size(); ++i) record(hopeful[i], racers[i]);
  check_lost();
}

/// Unloads all but the fastest, the untuned choice and the incumbent.
void Tuning::keep_loaded(std::size_t most) {
  std::set<std::size_t> keep = {0};
  if (incumbent_) keep.insert(*incumbent_);
  const std::vector<std::size_t> order = state_.by_time();
  for (std::size_t i = 0; i < order.size() && i < most; ++i) keep.insert(order[i]);
  for (std::size_t i = 0; i < state_.size(); ++i) {
    if (!state_[i].loaded || keep.count(i)) continue;
    evaluator_.release(candidates_[i].config);
    state_[i].loaded = false;
  }
}

void Tuning::measure(const std::vector<std::size_t>& indices, double share) {
  std::vector<std::size_t> unknown;
  for (std::size_t index : indices) {
    if (!state_[index].known) unknown.push_back(index);
  }
  progress_.enter(Progress::Phase::kCompile, static_cast<int>(unknown.size()));
  const double before_s = environment_.now_s();
  int done = 0;
  for (std::size_t begin = 0; begin < unknown.size(); begin += kBatch) {
    const std::size_t end = std::min(begin + kBatch, unknown.size());
    const std::vector<std::size_t> batch(unknown.begin() + begin, unknown.begin() + end);
    if (!alive(search_deadline(share))) {
      cut_ = true;
      break;
    }
    if (begin > 0) {
      progress_.enter(Progress::Phase::kCompile, static_cast<int>(unknown.size()));
      progress_.state.done = done;
    }
    load(batch, share, true);
    done = progress_.state.done;
    // The rounds may go on a little after the last compile: they are short, and a time without them
    // is a rough one.
    first_rounds(batch, std::max(share, kSearchShare));
    keep_loaded(kLoadedMost);
  }
  const auto known = std::count_if(unknown.begin(), unknown.end(),
                                   [&](std::size_t index) { return state_[index].known; });
  measured_ += static_cast<int>(known);
  left_ += static_cast<int>(unknown.size()) - static_cast<int>(known);
  measure_s_ += environment_.now_s() - before_s;
}

/// From the leaders to their neighbours, until that has not helped for some steps.
void Tuning::descend() {
  int idle = 0;
  while (idle < kDescentPatience) {
    const std::vector<std::size_t> order = state_.by_time();
    std::set<std::size_t> found;
    for (std::size_t i = 0; i < order.size() && i < kDescentLeaders; ++i) {
      for (std::size_t index : neighbours(candidates_, order[i])) {
        if (!state_[index].known) found.insert(index);
      }
    }
    if (found.empty()) return;
    std::vector<std::size_t> frontier(found.begin(), found.end());
    std::stable_sort(frontier.begin(), frontier.end(), [&](std::size_t a, std::size_t b) {
      return candidates_[a].estimate_us < candidates_[b].estimate_us;
    });
    frontier.resize(std::min(frontier.size(), kDescentStep));
    if (!alive(search_deadline(kSearchShare))) {
      cut_ = true;
      return;
    }
    const double before_us = state_.best_us();
    measure(frontier, kSearchShare);
    idle = state_.best_us() < kProgress * before_us ? 0 : idle + 1;
    if (cut_) return;
  }
}

}  // namespace attnforge
