// simulated_gpu.h - an Evaluator whose times behave as those of a real card: compiles on many
// threads that take a second each, a clock that falls as the card warms up, noise and outliers.
// What it draws from a seed, a search should choose well from.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/tuner/fake_evaluator.h"
#include "tuner/evaluate.h"

namespace attnforge::testing {

/// A problem's candidates in truth. The model's choice is the first.
struct Draw {
  std::vector<double> true_us;     // on a warm card, by candidate
  std::vector<double> compile_s;   // on one thread
  std::vector<double> clock_gain;  // how much faster on a cold card, relative
  double noise = 0;                // of a sample, relative
  double tensors_s = 0;            // allocation and oracle, once
  double proof_s = 0;              // beside its runs
  bool model_is_wrong = false;     // another of its best twelve is more than 10% faster
};

/// Mostly the model's choice is the best or within 3% of it; in one of six draws it is not.
inline Draw draw(unsigned seed, std::size_t candidates) {
  std::mt19937_64 random(seed);
  const auto between = [&](double low, double high) {
    return low + (high - low) * std::uniform_real_distribution<double>()(random);
  };
  Draw result;
  result.noise = between(0.01, 0.03);
  result.tensors_s = between(0.3, 0.9);
  result.proof_s = between(0.01, 0.06);
  result.model_is_wrong = seed % 6 == 0;
  const double base_us = 100 * std::exp(between(0, 4));
  const double size = between(1.0, 1.6);  // of the kernels' code
  const double drift = between(0.03, 0.10);
  for (std::size_t i = 0; i < candidates; ++i) {
    // The model's favourites have large tiles, which compile longer.
    result.compile_s.push_back(size * between(0.6, 1.5) * (i < 3 ? 1.2 : 1.0));
    result.true_us.push_back(base_us * (i == 0   ? 1
                                        : i < 12 ? between(1, 1.35)
                                                 : between(1.03, 1.8)));
    result.clock_gain.push_back(drift * between(0.85, 1));
  }
  const auto better = static_cast<std::size_t>(between(1, 12));
  result.true_us[better] = base_us /
                           (result.model_is_wrong ? between(1.10, 1.25) : between(1, 1.03));
  return result;
}

class SimulatedGpu : public Evaluator {
 public:
  SimulatedGpu(FakeClock& clock, const std::vector<Candidate>& candidates, const Draw& truth,
               unsigned seed)
      : clock_(clock), truth_(truth), random_(seed), busy_until_s_(clock.now_s) {
    for (std::size_t i = 0; i < candidates.size(); ++i) index_[to_string(candidates[i].config)] = i;
  }

  int threads = 16;
  std::vector<std::size_t> sampled;  // every sample's candidate, in order
  std::set<std::size_t> proved;

  std::string digest_of(const Candidate& candidate) override { return to_string(candidate.config); }

  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    std::vector<double> free_s(static_cast<std::size_t>(threads), clock_.now_s);
    std::vector<std::pair<double, std::size_t>> done;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      double& thread = *std::min_element(free_s.begin(), free_s.end());
      thread += truth_.compile_s[place(candidates[i].config)] * (candidates.size() > 8 ? 1.4 : 1.0);
      done.emplace_back(thread, i);
    }
    std::sort(done.begin(), done.end());
    for (const auto& [done_s, i] : done) {
      if (!keep_going()) return;
      make_tensors();
      while (clock_.now_s < done_s) {
        clock_.now_s += std::min(0.05, done_s - clock_.now_s);
        if (!keep_going()) return;
      }
      on_done(i, {});
    }
  }

  Measurement prove(const Config& config) override {
    const std::size_t candidate = place(config);
    make_tensors();
    Measurement result;
    result.samples = 1;
    result.time_us = run_us(candidate);
    run_us(candidate);
    clock_.now_s += truth_.proof_s;
    proved.insert(candidate);
    return result;
  }

  std::vector<double> sample_us(std::span<const Config> order, Sizes) override {
    std::vector<double> result;
    for (const Config& config : order) {
      const std::size_t candidate = place(config);
      if (!proved.count(candidate)) throw std::logic_error("not proved");
      sampled.push_back(candidate);
      busy(60e-6);
      result.push_back(run_us(candidate));
    }
    return result;
  }

  void heat(std::span<const Config>) override { busy(0.1); }
  double clock_mhz() override { return 1600; }
  void keep(const Config&) override {}
  void release(const Config&) override {}
  const Loss* lost() const override { return nullptr; }

  std::size_t place(const Config& config) const { return index_.at(to_string(config)); }

 private:
  void make_tensors() {
    if (!tensors_) clock_.now_s += truth_.tensors_s;
    tensors_ = true;
  }

  /// The card warms up while it runs and cools down while it does not.
  void busy(double seconds) {
    warmth_ *= std::exp(-(clock_.now_s - busy_until_s_) / 1.5);
    warmth_ = 1 - (1 - warmth_) * std::exp(-seconds);
    clock_.now_s += seconds;
    busy_until_s_ = clock_.now_s;
  }

  double run_us(std::size_t candidate) {
    const double gain = truth_.clock_gain[candidate] * (1 - warmth_);
    double time_us = truth_.true_us[candidate] * (1 - gain);
    busy(1e-6 * time_us);
    time_us *= std::normal_distribution<double>(1.0, truth_.noise)(random_);
    return random_() % 50 == 0 ? 1.1 * time_us : time_us;
  }

  FakeClock& clock_;
  const Draw& truth_;
  std::mt19937_64 random_;
  std::unordered_map<std::string, std::size_t> index_;
  double busy_until_s_;
  double warmth_ = 0;
  bool tensors_ = false;
};

}  // namespace attnforge::testing
