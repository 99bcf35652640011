// hostile_configs.cpp - how configs are bent.
#include "tests/support/hostile_configs.h"

#include <limits>
#include <set>
#include <utility>

namespace attnforge::test {
namespace {

constexpr int kLeast = std::numeric_limits<int>::min(), kMost = std::numeric_limits<int>::max();
constexpr int kHostile[] = {kLeast, -(1 << 30), -16, -1,   0,       1,       2,    3,
                            7,      12,         255, 4096, 1 << 15, 1 << 30, kMost};

std::vector<int> allowed_values(const Allowed& allowed) {
  constexpr int kEnough = 64;
  std::vector<int> values;
  for (long long value = allowed.least; value <= allowed.most && values.size() < kEnough;
       value = allowed.doubles ? 2 * value : value + allowed.step)
    values.push_back(static_cast<int>(value));
  return values;
}

}  // namespace

std::span<const Problem> hostile_problems() {
  static const std::vector<Problem> problems = [] {
    std::vector<Problem> list;
    for (const char* text :
         {"fwd bf16 batch=1 num_heads=6:2 seqlen=64:300 head_dim=64 causal",
          "fwd fp16 batch=2 num_heads=8:1 seqlen=1:4096 head_dim=128 lse",
          "fwd bf16 batch=1 num_heads=16 seqlen=2048 head_dim=72 causal rope=half",
          "fwd fp16 batch=1 num_heads=4:2 seqlen=1000 head_dim=320:512 softcap=30 window_left=64 "
          "alignment=8",
          "fwd fp16 batch=3 num_heads=5 seqlen=17:9 head_dim=8 alignment=4",
          "fwd fp32 batch=1 num_heads=6:2 seqlen=100:1000 head_dim=96:40 alignment=4",
          "fwd fp32 batch=2 num_heads=16:1 seqlen=8:700 head_dim=256 causal lse rope=interleaved",
          "fwd fp32 batch=1 num_heads=12 seqlen=1024 head_dim=64:128 tf32",
          "bwd bf16 batch=1 num_heads=6:2 seqlen=64:300 head_dim=64 causal",
          "bwd fp16 batch=2 num_heads=8:1 seqlen=100:4096 head_dim=128 accumulate",
          "bwd bf16 batch=1 num_heads=16 seqlen=2048 head_dim=256 causal deterministic",
          "bwd fp16 batch=3 num_heads=5 seqlen=17:9 head_dim=72 alignment=8 gradients=fp32",
          "bwd bf16 batch=1 num_heads=4 seqlen=500 head_dim=192:128 window_left=64 dlse",
          "bwd fp16 batch=1 num_heads=4:2 seqlen=1000 head_dim=64 softcap=30",
          "merge fp32 o=bf16 batch=3 num_heads=5 seqlen=17 head_dim=72 lse parts=9",
          "merge bf16 num_heads=16 seqlen=1000 head_dim=512 alignment=2 parts=32",
          "append bf16 batch=8 num_heads=32:8 seqlen=1:4096 head_dim=128 rope=half queries",
          "append fp32 batch=3 num_heads=5 seqlen=17:90 head_dim=72 lengths_after"}) {
      list.push_back(parse_problem(text));
    }
    return list;
  }();
  return problems;
}

std::vector<Config> mutations_of(const Config& config) {
  std::vector<Config> all;
  for (std::size_t i = 0; i < config.fields.size(); ++i) {
    const int own = config.fields[i].second;
    std::set<int> values(std::begin(kHostile), std::end(kHostile));
    if (own < 1 << 29) values.insert({own - 1, own + 1, own / 2, 2 * own, 4 * own, own + 16});
    values.erase(own);
    for (const int value : values) {
      all.push_back(config);
      all.back().fields[i].second = value;
    }
  }
  return all;
}

Config recombined(const Family& family, const Config& config, std::mt19937& random) {
  Config result = config;
  for (std::size_t i = 0; i < family.fields.size(); ++i) {
    if (random() % 4 != 0) continue;
    const std::vector<int> values = allowed_values(family.fields[i].allowed);
    result.fields[i].second = values[random() % values.size()];
  }
  return result;
}

std::vector<Candidate> unsearched_configs(const Family& family, const Problem& problem,
                                          const DeviceFacts& device, int count, unsigned seed) {
  constexpr int kAttempts = 2000;
  const std::vector<Candidate> all = candidates(family, problem, device);
  if (all.empty()) return {};
  std::set<std::string> known;
  for (const Candidate& each : all) known.insert(to_string(each.config));
  std::mt19937 random(seed);
  std::vector<Candidate> found;
  for (int i = 0; i < kAttempts && static_cast<int>(found.size()) < count; ++i) {
    Config config = recombined(family, all[random() % all.size()].config, random);
    if (!illegal(family, config, problem, device).empty()) continue;
    if (known.insert(to_string(config)).second) found.push_back({&family, std::move(config)});
  }
  return found;
}

}  // namespace attnforge::test
