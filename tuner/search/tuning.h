// tuning.h - one tuning run: its state and its steps. tune.cpp has its course and its memory of
// earlier runs, tuning_search.cpp the compiling and first timing of candidates, tuning_final.cpp
// the choice among the best.
#pragma once

#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "tuner/search/choices.h"
#include "tuner/search/journal.h"
#include "tuner/search/progress.h"
#include "tuner/search/race.h"
#include "tuner/search/search_state.h"
#include "tuner/search/tune.h"

namespace attnforge {

// Shares of the time limit until which candidates are compiled: seeds until the first and, in
// searches that go on from the leaders, their neighbours until the second. The rest is the final's.
inline constexpr double kSeedShare = 0.5, kSearchShare = 0.75;
inline constexpr double kHopeless = 1.5;  // times the best: not worth a round

class Tuning {
 public:
  Tuning(const Problem& problem, const DeviceFacts& device, Cache& cache, Evaluator& evaluator,
         const std::vector<Candidate>& candidates, const TuneOptions& options,
         TuneEnvironment environment)
      : problem_(problem),
        device_(device),
        problem_text_(environment.stored_as.empty() ? to_string(problem) : environment.stored_as),
        class_(device_class(device)),
        cache_(cache),
        evaluator_(evaluator),
        options_(options),
        environment_(with_clock(std::move(environment))),
        start_s_(environment_.now_s() - environment_.spent_s),
        search_start_s_(start_s_),
        state_(candidates),
        candidates_(candidates),
        journal_(cache, environment_, blank_try()),
        lease_(cache, environment_, problem_text_, class_),
        progress_(options.on_progress, environment_, start_s_, options.time_limit_s),
        random_(options.seed) {}

  TuneResult run();

 private:
  // What earlier runs left.
  Try blank_try() const;
  Cache::Current current() const;
  const std::string& digest_of(std::size_t index);
  std::optional<Winner> stored_winner(Rigor at_least);
  bool quick_search_stored();
  bool take_lease(const std::function<bool()>& answered);
  void reuse_tries();
  std::vector<std::size_t> starting_points();

  // Time, and the caller's wish to stop.
  double end_s() const;
  double final_deadline() const;
  double search_deadline(double share) const;
  bool alive(double until_s);
  void check_lost();

  // The search.
  Measurement prove(std::size_t index);
  void measure(const std::vector<std::size_t>& indices, double share);
  bool favourite(std::size_t index) const { return index == 0 || index == incumbent_; }
  void load(const std::vector<std::size_t>& indices, double share, bool sample);
  void first_sample(std::size_t index);
  void first_rounds(const std::vector<std::size_t>& indices, double share);
  void keep_loaded(std::size_t most);
  void descend();
  std::vector<std::size_t> contenders();
  Finalist finalist(std::size_t index) const;
  std::vector<Finalist> final_race();
  std::string choose(std::vector<Finalist> finalists);

  Racer racer(std::size_t index) const;
  void record(std::size_t index, const Racer& racer);
  void fail(std::size_t index, Status status, const std::string& detail);
  void note(std::size_t index);
  bool favourites_known() const;
  void finish(Rigor rigor, const std::string& winner);
  TuneResult result(const std::string& winner);

  const Problem& problem_;
  const DeviceFacts& device_;
  const std::string problem_text_, class_;
  Cache& cache_;
  Evaluator& evaluator_;
  const TuneOptions& options_;
  const TuneEnvironment environment_;
  const double start_s_;   // of the call that has the time limit
  double search_start_s_;  // when others had been waited for
  SearchState state_;
  const std::vector<Candidate>& candidates_;
  Journal journal_;
  Lease lease_;
  ProgressReporter progress_;
  std::mt19937_64 random_;
  std::optional<std::size_t> incumbent_;
  Rigor incumbent_rigor_ = Rigor::kQuick;  // of the search that it won
  int proofs_ = 0;
  double longest_proof_s_ = 0;
  bool cancelled_ = false;
  bool cut_ = false;  // something planned was left out
  int left_ = 0;      // of what was to be measured
  int measured_ = 0;  // in this run, in measure_s_
  double measure_s_ = 0;
};

}  // namespace attnforge
