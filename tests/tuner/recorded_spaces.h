// recorded_spaces.h - spaces of configs that a real GPU went through one by one
// (recorded_spaces.txt), and an Evaluator that answers with those times.
#pragma once

#include <cmath>
#include <istream>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"
#include "tests/tuner/fake_evaluator.h"
#include "tuner/evaluate.h"

namespace attnforge::testing {

/// Names a config by what is not 0, so that a field which is younger than a recording, and off,
/// changes nothing.
inline std::string name_of(const Config& config) {
  std::map<std::string, int> set;
  for (const auto& [name, value] : config.fields)
    if (value != 0) set[name] = value;
  std::string text = config.family;
  for (const auto& [name, value] : set) text += " " + name + "=" + std::to_string(value);
  return text;
}

struct RecordedSpace {
  Problem problem;
  std::string gpu;
  std::set<std::string> families;
  std::map<std::string, double> us;  // median, by name_of(); NaN: failed
  double best_us = std::numeric_limits<double>::infinity();
};

/// Throws std::runtime_error with the line that is none.
inline std::vector<RecordedSpace> read_spaces(std::istream& file) {
  std::vector<RecordedSpace> spaces;
  std::vector<std::string> names;
  Config config;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    const std::string rest = line.size() > word.size() ? line.substr(word.size() + 1) : "";
    if (word.empty() || word[0] == '#') continue;
    if (word == "space") {
      spaces.emplace_back().problem = parse_problem(rest);
    } else if (spaces.empty()) {
      throw std::runtime_error("before the first space: " + line);
    } else if (word == "gpu") {
      spaces.back().gpu = rest;
    } else if (word == "family") {
      words >> config.family;
      spaces.back().families.insert(config.family);
      names.clear();
      for (std::string name; words >> name;) names.push_back(name);
    } else {
      config.fields.clear();
      for (int value = 0; config.fields.size() < names.size() && words >> value;)
        config.fields.emplace_back(names[config.fields.size()], value);
      if (config.fields.size() < names.size() || words >> word)
        throw std::runtime_error("not a config of those fields: " + line);
      RecordedSpace& space = spaces.back();
      const double us = word == "-" ? std::numeric_limits<double>::quiet_NaN() : std::stod(word);
      space.us[name_of(config)] = us;
      if (us < space.best_us) space.best_us = us;
    }
  }
  return spaces;
}

/// Today's candidates that were measured, in today's order. The arch is `device`'s.
inline std::vector<Candidate> candidates_of(const RecordedSpace& space, const DeviceFacts& device) {
  std::vector<const Family*> families;
  for (const std::string& name : space.families) families.push_back(find_family(name));
  std::vector<Candidate> result = candidates(families, space.problem, device);
  std::erase_if(result, [&](const Candidate& c) { return !space.us.contains(name_of(c.config)); });
  return result;
}

/// Samples are the recorded median with 1% of noise; a failed config fails its proof. Proving is
/// what counts as an evaluation.
class RecordedGpu : public Evaluator {
 public:
  RecordedGpu(FakeClock& clock, const RecordedSpace& space, unsigned seed)
      : clock_(clock), space_(space), random_(seed) {}

  std::vector<double> proved_us;  // of each evaluation, in order; infinity: failed

  double us(const Config& config) const { return space_.us.at(name_of(config)); }
  double best_us(std::size_t evaluations) const {
    double best = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < proved_us.size() && i < evaluations; ++i)
      best = std::min(best, proved_us[i]);
    return best;
  }

  std::string digest_of(const Candidate& candidate) override { return to_string(candidate.config); }
  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    for (std::size_t i = 0; i < candidates.size() && keep_going(); ++i) {
      clock_.now_s += 0.1;
      on_done(i, {});
    }
  }
  Measurement prove(const Config& config) override {
    Measurement result;
    if (!proved_.insert(name_of(config)).second) return result;
    const double time_us = us(config);
    const bool failed = std::isnan(time_us);
    proved_us.push_back(failed ? std::numeric_limits<double>::infinity() : time_us);
    result.status = failed ? Status::kLaunchError : Status::kOk;
    result.time_us = failed ? 0 : time_us;
    result.samples = 1;
    return result;
  }
  std::vector<double> sample_us(std::span<const Config> order, Sizes) override {
    std::vector<double> result;
    for (const Config& config : order)
      result.push_back(us(config) * std::normal_distribution<double>(1, 0.01)(random_));
    return result;
  }
  void heat(std::span<const Config>) override { clock_.now_s += 0.1; }
  double clock_mhz() override { return 1600; }
  void keep(const Config&) override {}
  void release(const Config&) override {}
  const Loss* lost() const override { return nullptr; }

 private:
  FakeClock& clock_;
  const RecordedSpace& space_;
  std::mt19937_64 random_;
  std::set<std::string> proved_;
};

}  // namespace attnforge::testing
