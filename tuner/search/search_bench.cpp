#include "tuner/search/search_bench.h"

#include <algorithm>

#include "attnforge/error.h"

namespace attnforge {

const std::string& SearchBench::digest_of(std::size_t index) {
  Entry& entry = state[index];
  if (entry.digest.empty()) entry.digest = evaluator.digest_of(candidates[index]);
  return entry.digest;
}

double SearchBench::search_deadline(double share) const {
  std::vector<double> times;
  if (clock.options.time_limit_s > 0) {
    for (std::size_t index : state.by_time()) times.push_back(state[index].measurement.time_us);
  }
  return clock.search_deadline(share, times);
}

bool SearchBench::alive(double until_s) {
  history.tick();
  progress.state.best_us = state.best_us();
  progress.tick();
  return clock.is_before(until_s) && evaluator.lost() == nullptr;
}

void SearchBench::check_lost() {
  const Loss* loss = evaluator.lost();
  if (loss == nullptr) return;
  const std::size_t culprit = state.find(loss->config);
  if (culprit != state.size()) {
    state[culprit].loaded = false;  // nothing can be unloaded any more
    fail(culprit, loss->measurement.status, loss->measurement.detail);
  }
  history.journal.flush();
  throw Error(ErrorCode::kCuda,
              "tuning of \"" + history.problem + "\" had to stop: " + loss->advice);
}

Racer SearchBench::racer(std::size_t index) const {
  Racer result;
  result.config = candidates[index].config;
  result.expected_us = state[index].measurement.time_us;
  return result;
}

void SearchBench::note(std::size_t index) {
  const Entry& entry = state[index];
  history.journal.note(entry.config, candidates[index].config.family, digest_of(index),
                       candidates[index].estimate_us, entry.measurement);
}

void SearchBench::release(std::size_t index) {
  evaluator.release(candidates[index].config);
  state[index].loaded = false;
}

void SearchBench::fail(std::size_t index, Status status, const std::string& detail) {
  Entry& entry = state[index];
  entry.measurement.status = status;
  entry.measurement.time_us = 0;
  entry.measurement.detail = detail;
  entry.known = true;
  ++progress.state.failed;
  note(index);
  if (entry.loaded) release(index);
}

void SearchBench::record(std::size_t index, const Racer& racer) {
  if (racer.failed) {
    fail(index, Status::kLaunchError, "a launch failed while it was timed");
    return;
  }
  if (racer.samples.empty()) return;
  Entry& entry = state[index];
  set_times(entry.measurement, racer);
  entry.known = true;
  note(index);
  if (progress.state.best_us == 0 || entry.measurement.time_us <= state.best_us()) {
    progress.state.best_us = entry.measurement.time_us;
    progress.state.best_config = entry.config;
  }
  if (index == 0) progress.state.default_us = entry.measurement.time_us;
}

bool SearchBench::race(const std::vector<std::size_t>& indices, int rounds, double share) {
  std::vector<Racer> racers;
  for (std::size_t index : indices) racers.push_back(racer(index));
  std::vector<Racer*> pointers;
  for (Racer& racer : racers) pointers.push_back(&racer);
  const bool whole = run_rounds(evaluator, pointers, rounds, random,
                                [&] { return alive(search_deadline(share)); });
  for (std::size_t i = 0; i < indices.size(); ++i) record(indices[i], racers[i]);
  check_lost();
  return whole;
}

/// A time at once, while others compile: nothing is lost when the run is killed, and hopeless ones
/// are seen.
void SearchBench::first_sample(std::size_t index) {
  Racer alone = racer(index);
  const double best_us = state.best_us();
  const double rough_us = state[index].measurement.time_us;  // of the proof's launch
  const bool slow = rough_us > 20e3 || (best_us > 0 && rough_us > 2 * best_us);
  const std::vector<Config> order(slow ? 1 : kFirstRounds, alone.config);
  if (rough_us > 100e3) {
    alone.samples = {rough_us};
  } else {
    const std::vector<double> times = evaluator.sample_us(order, Sizes::kBucket);
    if (evaluator.lost() != nullptr) return;
    for (double time_us : times) {
      if (time_us > 0) alone.samples.push_back(time_us);
    }
    alone.failed = alone.samples.size() < order.size();
    if (evaluator.clock_mhz() > 0) alone.clock_mhz = {evaluator.clock_mhz()};
  }
  record(index, alone);
}

Measurement SearchBench::prove(std::size_t index) {
  const double before_s = clock.now_s();
  const Measurement measurement = evaluator.prove(candidates[index].config);
  const double two_runs_s = 2e-6 * measurement.time_us;
  const double proof_s = proved_any ? clock.now_s() - before_s : two_runs_s;
  proved_any = true;
  clock.longest_proof_s = std::max(clock.longest_proof_s, proof_s);
  return measurement;
}

void SearchBench::load(const std::vector<std::size_t>& indices, double share, bool sample) {
  std::vector<std::size_t> missing;
  for (std::size_t index : indices) {
    if (state[index].loaded) continue;
    digest_of(index);
    missing.push_back(index);
  }
  if (missing.empty()) return;
  const auto others = std::stable_partition(missing.begin(), missing.end(),
                                            [&](std::size_t index) { return is_favourite(index); });
  std::vector<Candidate> batch;
  for (std::size_t index : missing) batch.push_back(candidates[index]);
  auto awaited = others - missing.begin();
  std::vector<std::size_t> proved;  // before the favourites were, and not yet timed
  std::size_t seen = 0;
  const auto keep_going = [&] {
    if (awaited > 0) return alive(search_deadline(1.0) - clock.longest_proof_s);
    // Something must work before time is up, however slow the compiler.
    return alive(search_deadline(state.best_us() > 0 ? share : std::max(share, kSearchShare)));
  };
  evaluator.prepare(batch, keep_going, [&](std::size_t i, const Measurement& prepared) {
    const std::size_t index = missing[i];
    Entry& entry = state[index];
    ++seen;
    ++progress.state.done;
    if (evaluator.lost() != nullptr) return;
    Measurement measurement = prepared;
    // Two runs that would not end in time, as the model has it, are not begun.
    const double two_runs_s = 2e-6 * candidates[index].estimate_us;
    const bool something_works = state.best_us() > 0 || !proved.empty();
    if (measurement.status == Status::kOk && something_works &&
        clock.now_s() + two_runs_s > clock.final_deadline()) {
      release(index);
      clock.cut = true;
      return;
    }
    if (measurement.status == Status::kOk) {
      entry.loaded = true;
      measurement = prove(index);
      if (evaluator.lost() != nullptr) return;  // check_lost() records it
    }
    if (measurement.status != Status::kOk) {
      entry.measurement = measurement;
      fail(index, measurement.status, measurement.detail);
    } else if (sample) {
      entry.measurement = measurement;
      proved.push_back(index);
    }
    if (is_favourite(index)) --awaited;
    if (awaited > 0) return;
    for (std::size_t each : proved) {
      if (evaluator.lost() == nullptr) first_sample(each);
    }
    proved.clear();
  });
  check_lost();
  clock.cut |= seen < batch.size();
  // Time was over before a favourite was compiled. A time of the others would make one of them what
  // plans run, although nobody knows that it is faster.
  for (std::size_t index : proved) release(index);
}

void SearchBench::keep_loaded(std::size_t most) {
  std::vector<bool> keep(state.size());
  const std::vector<std::size_t> order = state.by_time();
  for (std::size_t i = 0; i < order.size() && i < most; ++i) keep[order[i]] = true;
  for (std::size_t i = 0; i < state.size(); ++i) {
    if (state[i].loaded && !keep[i] && !is_in_final(i)) release(i);
  }
}

std::string SearchBench::fastest() const {
  const std::vector<std::size_t> order = state.by_time();
  return order.empty() ? std::string() : state[order.front()].config;
}

}  // namespace attnforge
