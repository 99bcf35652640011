// fake_evaluator.h - an Evaluator without a GPU: times from a formula with noise, a clock that it
// moves itself.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tuner/evaluate.h"
#include "tuner/search/environment.h"

namespace attnforge::testing {

struct FakeClock {
  double now_s = 1000;
};

inline TuneEnvironment environment(FakeClock& clock) {
  TuneEnvironment result;
  result.driver = "driver 1";
  result.nvrtc = "nvrtc 1";
  result.now_s = [&clock] { return clock.now_s; };
  result.sleep_s = [&clock](double seconds) { clock.now_s += seconds; };
  return result;
}

inline double formula_us(const Config& config, int best_block_n, int best_persistent) {
  const double m = std::log2(config.get("block_m") / 128.0);
  const double n = (config.get("block_n") - best_block_n) / 32.0;
  const double s = config.get("stages") - 3;
  return 100 * (1 + 0.15 * m * m) * (1 + 0.10 * n * n) * (1 + 0.05 * s * s) *
         (config.get("persistent") == best_persistent ? 1.0 : 1.04);
}

/// The best is block_m=128 block_n=96 stages=3 persistent=1 with 100 us.
inline double true_us(const Config& config) { return formula_us(config, 96, 1); }

inline const Family& fake_family() {
  static const Family family = [] {
    Family result;
    result.name = "fake";
    return result;
  }();
  return family;
}

/// 4 * 6 * 3 * 2 = 144 configs, best estimate first. The model is wrong about two axes, so its
/// first choice is 1.46 times slower than the best.
inline std::vector<Candidate> fake_candidates() {
  std::vector<Candidate> result;
  for (int m : {32, 64, 128, 256}) {
    for (int n : {32, 64, 96, 128, 160, 192}) {
      for (int stages : {2, 3, 4}) {
        for (int persistent : {0, 1}) {
          Candidate candidate;
          candidate.family = &fake_family();
          candidate.config = {
              "fake",
              {{"block_m", m}, {"block_n", n}, {"stages", stages}, {"persistent", persistent}}};
          candidate.estimate_us = formula_us(candidate.config, 160, 0);
          result.push_back(candidate);
        }
      }
    }
  }
  std::stable_sort(result.begin(), result.end(), [](const Candidate& a, const Candidate& b) {
    return a.estimate_us < b.estimate_us;
  });
  return result;
}

class FakeEvaluator : public Evaluator {
 public:
  explicit FakeEvaluator(FakeClock& clock) : clock_(clock) {}

  // What a test may change.
  std::function<double(const Config&)> time_us = true_us;
  std::function<double(const Config&)> asked_us;  // none: nobody may ask for such samples
  double noise = 0.01;                            // standard deviation, relative
  double compile_s = 0.025;                       // a candidate, all threads together
  std::string digest_suffix;                      // "templates have changed"
  std::set<std::string> does_not_compile, does_not_launch, wrong, fails_when_timed, fails_as_asked,
      hangs, hangs_when_timed;
  std::map<std::string, int> wrong_from_proof;  // correct before this many proofs

  // What a test may look at.
  int prepared = 0, proved = 0, sampled = 0;
  std::map<std::string, int> samples_of;
  std::set<std::string> loaded, kept;
  std::size_t loaded_most = 0;
  double first_sample_after_pause_boost = 0.92;  // an unheated card is faster

  std::string digest_of(const Candidate& candidate) override {
    return to_string(candidate.config) + digest_suffix;
  }

  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    heated_ = false;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      for (double slept = 0; slept < compile_s; slept += 0.1) {
        if (!keep_going()) return;
        clock_.now_s += std::min(0.1, compile_s - slept);
      }
      if (!keep_going()) return;
      const std::string config = to_string(candidates[i].config);
      ++prepared;
      Measurement result;
      if (does_not_compile.count(config)) {
        result.status = Status::kCompileError;
        result.detail = "error: fake";
      } else if (does_not_launch.count(config)) {
        result.status = Status::kLaunchError;
        result.detail = "too much shared memory";
      } else {
        loaded.insert(config);
        loaded_most = std::max(loaded_most, loaded.size());
      }
      on_done(i, result);
    }
  }

  Measurement prove(const Config& config) override {
    require(config);
    ++proved;
    const std::string text = to_string(config);
    Measurement result;
    result.max_error = 1e-3;
    result.time_us = time_us(config);
    result.samples = 1;
    clock_.now_s += 2e-6 * result.time_us + 1e-3;
    const int proofs = ++proofs_[text];
    const auto late = wrong_from_proof.find(text);
    if (wrong.count(text) || (late != wrong_from_proof.end() && proofs > late->second)) {
      result.status = Status::kWrongResult;
      result.detail = "o[0, 0, 0, 0] = 1, oracle 2";
    }
    if (hangs.count(text)) {
      result.status = Status::kTimedOut;
      result.detail = "no end after 2 s";
      lost_ = Loss{text, result, "a kernel hangs: restart the process"};
      clock_.now_s += 2;
    }
    return result;
  }

  std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) override {
    std::vector<double> result;
    for (const Config& config : order) {
      require(config);
      const std::string text = to_string(config);
      ++sampled;
      const int nth = ++samples_of[text];
      if (hangs_when_timed.count(text) && nth > 3) {
        Measurement result_of_it;
        result_of_it.status = Status::kTimedOut;
        lost_ = Loss{text, result_of_it, "a kernel hangs: restart the process"};
        return std::vector<double>(order.size(), std::numeric_limits<double>::quiet_NaN());
      }
      std::normal_distribution<double> normal(1.0, noise);
      const bool asked = sizes == Sizes::kAsked;
      double sample = asked ? asked_us(config) : time_us(config);
      sample *= normal(random_);
      if (!heated_) sample *= first_sample_after_pause_boost;
      heated_ = true;
      clock_.now_s += 1e-6 * sample + 60e-6;
      const bool fails = nth > 3 &&
                         (fails_when_timed.count(text) || (asked && fails_as_asked.count(text)));
      result.push_back(fails ? std::numeric_limits<double>::quiet_NaN() : sample);
    }
    return result;
  }

  void heat(std::span<const Config> configs) override {
    for (const Config& config : configs) require(config);
    clock_.now_s += 0.1;
    heated_ = true;
  }

  double clock_mhz() override { return 1600; }
  void release(const Config& config) override { loaded.erase(to_string(config)); }
  const Loss* lost() const override { return lost_ ? &*lost_ : nullptr; }
  void keep(const Config& config) override {
    require(config);
    kept.insert(to_string(config));
  }

 private:
  void require(const Config& config) const {
    if (!loaded.count(to_string(config)))
      throw std::logic_error("not prepared: " + to_string(config));
    if (lost_) throw std::logic_error("used after it was lost");
  }

  FakeClock& clock_;
  std::mt19937_64 random_{42};
  std::map<std::string, int> proofs_;
  std::optional<Loss> lost_;
  bool heated_ = false;
};

}  // namespace attnforge::testing
