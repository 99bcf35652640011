// config_text.cpp - any text as a config, forced upon a problem: refused in words, or legal, and
// then its source and its launch are sound. An input is a line with the problem, and the config.
#include <fmt/format.h>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "plan/choice/choice.h"
#include "plan/plan_state.h"
#include "templates/registry.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/launches.h"

namespace attnforge::fuzz {
namespace {

const char* const kProblems[] = {
    "fwd bf16 batch=1 num_heads=6:2 seqlen=200:333 head_dim=64 causal lse",
    "fwd fp16 batch=2 num_heads=4 seqlen=1024 head_dim=128",
    "fwd fp32 batch=1 num_heads=2 seqlen=100 head_dim=64 alignment=4",
    "fwd bf16 batch=3 num_heads=8:1 seqlen=1:5000 head_dim=192:128 window_left=100"};

/// The first of each family for each problem, and one from the middle.
std::vector<std::string> configs_of(const std::string& problem) {
  std::vector<std::string> configs;
  for (const char* arch : {"90a", "80"}) {
    for (const Family* family : registry()) {
      const auto all = candidates(*family, parse_problem(problem), typical_device(arch));
      if (all.empty()) continue;
      configs.push_back(to_string(all.front().config));
      configs.push_back(to_string(all[all.size() / 2].config));
    }
  }
  return configs;
}

void check_text(const Config& config) {
  const std::string text = to_string(config);
  require(parse_config(text) == config, "another config is read back from " + text);
}

}  // namespace

int fuzz_one(const std::uint8_t* data, std::size_t size) {
  const std::string text = text_of(data, size);
  const std::size_t line = std::min(text.find('\n'), text.size());
  Problem problem = parse_problem(kProblems[0]);
  accepts([&] { problem = parse_problem(text.substr(0, line)); });
  const std::string config_text = text.substr(std::min(line + 1, text.size()));
  Config config;
  if (!accepts([&] { config = parse_config(config_text); })) return 0;
  check_text(config);
  int accepted = 0;
  for (const char* arch : {"90a", "80", "120a"}) {
    const DeviceFacts& device = typical_device(arch);
    Choice choice;
    if (!accepts([&] { choice = forced_choice(config_text, problem, device, {}); })) continue;
    ++accepted;
    const Source source = choice.family->render(choice.config, problem);
    const Launch launch = choice.family->launch(choice.config, problem, device);
    require_sound(launch, source, problem, device);
    accepts([&] {
      Problem largest = problem;
      largest.seqlen_q = largest.seqlen_kv = 4096;
      workspace_bound(largest, to_string(choice.config), device);
    });
  }
  return accepted > 0 ? 1 : 0;
}

std::vector<std::string> corpus() {
  std::vector<std::string> inputs;
  for (const char* problem : kProblems) {
    for (const std::string& config : configs_of(problem))
      inputs.push_back(fmt::format("{}\n{}", problem, config));
  }
  return inputs;
}

std::vector<std::string> words() {
  std::vector<std::string> all = {
      "fwd_nothing", "=",           "block_m=0",        "num_warps=255",
      "stages=0",    "pack_gqa=3",  "head_group_mb=-1", "blocks_per_sm=1073741824",
      "dtype=2",     "head_dim=64", "right_bound=1",    "dtype_q=1"};
  for (const char* problem : kProblems) {
    for (const std::string& text : configs_of(problem)) {
      const Config config = parse_config(text);
      all.push_back(config.family);
      for (const auto& [name, value] : config.fields)
        all.push_back(fmt::format("{}={}", name, value));
    }
  }
  return all;
}

}  // namespace attnforge::fuzz
