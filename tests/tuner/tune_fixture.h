// tune_fixture.h - a search over fake candidates on a fake GPU with a fake clock, and its database.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/cache.h"
#include "generator/arch.h"
#include "tests/tuner/fake_evaluator.h"
#include "tuner/search/tune.h"

namespace attnforge::testing {

inline const char* const kBest = "fake block_m=128 block_n=96 stages=3 persistent=1";

class TuneTest : public ::testing::Test {
 protected:
  TuneResult tune() { return tune(evaluator); }
  TuneResult tune(Evaluator& with) {
    return tune_problem(problem, device, cache, with, candidates, options, environment(clock));
  }
  std::vector<Try> stored() { return cache.tries(to_string(problem), device_class(device)); }
  Cache::Current current() const {
    return {.device_class = device_class(device),
            .driver = "driver 1",
            .nvrtc = "nvrtc 1",
            .sm = device.arch.sm};
  }
  std::optional<Winner> winner(Rigor rigor) {
    return cache.best(
        to_string(problem), current(), [&](std::string_view config) { return std::string(config); },
        rigor);
  }

  const Problem problem = parse_problem("fwd bf16 num_heads=8 seqlen=1024 head_dim=128");
  const DeviceFacts device = typical_device("90a");
  const std::vector<Candidate> candidates = fake_candidates();
  const std::string untuned = to_string(candidates.front().config);
  Cache cache{":memory:"};
  TuneOptions options;
  FakeClock clock;
  FakeEvaluator evaluator{clock};
};

}  // namespace attnforge::testing
