// scratch_table_test.cpp - what docs/TRAINING.md says of the scratch of gradients: the formula
// holds of all families and problems, and the table is what the library says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <random>
#include <string>

#include "attnforge/device.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "generator/tensors/tensor_elements.h"
#include "plan/plan_state.h"
#include "templates/bwd_wgmma_sm90a/config.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

constexpr const char* kWgmma = "bwd_wgmma_sm90a";

std::int64_t rounded_up(std::int64_t value, std::int64_t to) { return (value + to - 1) / to * to; }

struct Scratch {
  std::int64_t tile = 0, columns = 0, bytes = 0;
};

/// The document's formula.
Scratch formula(const Problem& p, const Config& config, bool sums_dq) {
  Scratch s{.tile = find_family(config.family)->tile_shape(config, p).block_m};
  if (sums_dq) s.columns = rounded_up(p.head_dim, config.family == kWgmma ? 64 : 16);
  const std::int64_t rows = p.lengths == Lengths::kPacked
                                ? (total_tokens(p).q / s.tile + p.batch) * s.tile
                                : p.batch * rounded_up(p.seqlen_q, s.tile);
  s.bytes = p.num_heads_q * rows * (8 + 4 * s.columns);
  if (const int splits = config.family == kWgmma ? config.get("group_splits") : 1; splits > 1) {
    const std::int64_t group = p.num_heads_q / p.num_heads_kv,
                       heads = (group + splits - 1) / splits;
    const std::int64_t keys = p.lengths == Lengths::kPacked ? total_tokens(p).kv
                                                            : p.batch * p.seqlen_kv;
    const bool in_order = config.get("dq") == kDqInOrder || config.get("dq") == kDqFromDiagonal;
    s.bytes += p.num_heads_kv * (in_order ? (group + heads - 1) / heads : 1) * keys * 4 *
               (p.head_dim + p.head_dim_v);
  }
  return s;
}

bool sums_dq(const Launch& launch) {
  for (const LaunchStep& step : launch.steps)
    if (step.kernel == "bwd_dq") return true;
  return false;
}

/// Compares some configs of all families that serve the problem; returns how many.
int compare(const Problem& problem) {
  int configs = 0;
  for (const char* arch : {"86", "90a"}) {
    const DeviceFacts& device = typical_device(arch);
    for (const Family* family : registry()) {
      if (family->tier != Tier::kProduct ||
          !rejection(*family, bucket(problem), device.arch).empty())
        continue;
      const std::vector<Candidate> all = candidates(*family, bucket(problem), device);
      for (std::size_t i = 0; i < all.size(); i += 1 + all.size() / 7, ++configs) {
        const Config& config = all[i].config;
        const Launch launch = family->launch(config, problem, device);
        const auto said = static_cast<double>(formula(problem, config, sums_dq(launch)).bytes),
                   bytes = static_cast<double>(launch.workspace_bytes);
        EXPECT_GE(bytes, said) << to_string(problem) << " " << to_string(config);
        EXPECT_LE(bytes, said * 1.01 + 4096) << to_string(problem) << " " << to_string(config);
        EXPECT_EQ(workspace_bound(problem, to_string(config), device), launch.workspace_bytes);
      }
    }
  }
  return configs;
}

TEST(Scratch, OfGradientsIsWhatTheDocumentSaysOfEveryConfig) {
  int configs = 0;
  for (const char* words :
       {"batch=9 num_heads=6:2 seqlen=333:1000 head_dim=136:64",
        "batch=17 num_heads=8:4 seqlen=1000 head_dim=96 lengths=packed tokens=5000",
        "batch=40 num_heads=3 seqlen=70 head_dim=64 lengths=used window_left=20",
        "batch=2 num_heads=4 seqlen=512 head_dim=64 blocks=64",
        "num_heads=24:8 seqlen=2000 head_dim=128 sinks"})
    configs += compare(parse_problem(std::string("bwd bf16 ") + words));
  std::mt19937 random(7);
  const auto drawn = [&](int least, int most) {
    return least + static_cast<int>(random() % unsigned(most - least + 1));
  };
  for (int i = 0; i < 20; ++i) {
    const int heads = drawn(1, 4);
    configs += compare(parse_problem(
        fmt::format("bwd fp16 batch={} num_heads={}:{} seqlen={}:{} head_dim={}{}{}", drawn(1, 200),
                    heads * drawn(1, 4), heads, drawn(1, 700), drawn(1, 700), 8 * drawn(1, 32),
                    drawn(0, 1) ? " causal" : "", drawn(0, 2) == 0 ? " deterministic" : "")));
  }
  EXPECT_GT(configs, 200);
}

std::string table() {
  std::string text =
      "| problem | GPU | rows of a query tile | columns | workspace | times the bytes of dq |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const char* words :
       {"batch=4 num_heads=16 seqlen=4096 head_dim=128",
        "batch=4 num_heads=16 seqlen=4096 head_dim=72",
        "batch=4 num_heads=16 seqlen=4096 head_dim=128 deterministic",
        "batch=1024 num_heads=16 seqlen=15 head_dim=128",
        "batch=28800 num_heads=16 seqlen=15 head_dim=72",
        "batch=64 num_heads=16 seqlen=1024 head_dim=64 lengths=packed tokens=8192"}) {
    const Problem problem = parse_problem(std::string("bwd bf16 ") + words);
    const DeviceFacts& device = typical_device("90a");
    const Config config = untuned(registry(), bucket(problem), device).config;
    const Launch launch = find_family(config.family)->launch(config, problem, device);
    const Scratch said = formula(problem, config, sums_dq(launch));
    text += fmt::format("| `{}` | sm_90a | {} | {} | {:.1f} MB | {:.1f} |\n", words, said.tile,
                        said.columns, double(launch.workspace_bytes) * 1e-6,
                        double(launch.workspace_bytes) / (elements_q(problem) * 2));
  }
  return text;
}

TEST(Scratch, HasTheTableOfTheDocument) {
  std::ifstream file(std::string(ATTNFORGE_SOURCE_DIR) + "/docs/TRAINING.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(docs.find("\n" + table() + "\n"), std::string::npos)
      << "docs/TRAINING.md must have this table:\n"
      << table();
}

}  // namespace
}  // namespace attnforge
