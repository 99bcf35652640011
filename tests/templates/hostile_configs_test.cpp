// hostile_configs_test.cpp - a config that nobody searched is refused before any arithmetic with
// it, or can be launched: for every family, several problems and archs. No compiler, no GPU; at its
// sharpest under the sanitizers.
#include "tests/support/hostile_configs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/backward/host.h"
#include "templates/hopper/grid.cuh"
#include "templates/host/fwd_params.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

constexpr unsigned kSeed = 1;
constexpr int kRecombined = 300;  // of each family, problem and arch

/// Rows of a query tile, by the words of each family's config.h.
std::int64_t tile_rows(const Config& c) {
  const std::map<std::string, std::function<int()>> rows = {
      {"fwd_naive", [&] { return c.get("block_m"); }},
      {"fwd_flash_scalar", [&] { return 32 * c.get("num_warps") / c.get("lanes_per_row"); }},
      {"fwd_flash_vec",
       [&] {
         return c.get("num_warps") * (32 / c.get("lanes_per_row")) * c.get("rows_per_thread");
       }},
      {"fwd_materialized", [&] { return c.get("block_m"); }},
      {"fwd_wmma", [&] { return c.get("block_m"); }},
      {"fwd_mma_sm80", [&] { return c.get("block_m"); }},
      {"fwd_regtile_f32", [&] { return c.get("warp_m") * c.get("warps_m"); }},
      {"fwd_wgmma_sm90a", [&] {
         const int rows = 64 * c.get("warpgroups"), pack = c.get("pack_gqa");
         return rows / pack * pack;  // whole queries
       }}};
  return rows.at(c.family)();
}

int field_or(const Config& c, std::string_view name, int otherwise) {
  const auto found = std::find_if(c.fields.begin(), c.fields.end(),
                                  [&](const auto& field) { return field.first == name; });
  return found == c.fields.end() ? otherwise : found->second;
}

/// Every query row of every head is in one tile, and no tile is empty.
void expect_tiles_cover_queries(const Config& c, const Problem& problem, const Launch& launch) {
  const std::int64_t pack = field_or(c, "pack_gqa", 1);
  ASSERT_EQ(problem.num_heads_q / problem.num_heads_kv % pack, 0);
  const std::int64_t heads = problem.batch * problem.num_heads_q / pack;
  ASSERT_TRUE(pack == 1 || heads == problem.batch * problem.num_heads_kv);
  const std::int64_t rows = problem.seqlen_q * pack;
  const std::int64_t tiles = (rows + tile_rows(c) - 1) / tile_rows(c) * heads;
  const LaunchStep& last = launch.steps[own_step(launch)];
  if (c.family == "fwd_naive") {
    EXPECT_EQ(last.grid.x, tiles);
  } else if (c.family == "fwd_materialized") {
    EXPECT_EQ(last.grid.x % tiles, 0);
  } else {
    FwdTiledParams params;  // how the arguments of the other families begin
    ASSERT_GE(last.params.size(), sizeof(params));
    std::memcpy(&params, last.params.data(), sizeof(params));
    EXPECT_EQ(params.order.heads, heads);
    EXPECT_EQ(params.order.m_blocks * heads, tiles);
    EXPECT_GE(params.order.heads_per_group, 1);
    EXPECT_LE(params.order.heads_per_group, std::max<std::int64_t>(heads, 1));
    const int grid = field_or(c, "grid", 0);
    if (grid == kGridShares) {
      EXPECT_GT(last.grid.x, 0);  // as many as have a place, whatever the tiles
    } else {
      EXPECT_TRUE(last.grid.x * last.grid.z == tiles || (grid != 0 && last.grid.x < tiles))
          << last.grid.x;
    }
  }
}

/// Every key of every K/V head is in one tile.
void expect_tiles_cover_keys(const Config& c, const Problem& problem, const Launch& launch) {
  if (c.family == "bwd_naive") return;  // has rows of both sides
  const std::int64_t block_n = c.family == "bwd_wgmma_sm90a" ? c.get("split_columns") ? 64 : 128
                                                             : c.get("block_n");
  const std::int64_t tiles = (problem.seqlen_kv + block_n - 1) / block_n;
  const std::int64_t blocks = launch.steps[own_step(launch)].grid.x,
                     all = tiles * problem.batch * problem.num_heads_kv *
                           GroupShares::of(problem, field_or(c, "group_splits", 1)).count;
  const bool persistent = field_or(c, "grid", 0) != 0;
  EXPECT_TRUE(blocks == all || (persistent && blocks < all)) << blocks << " for " << all;
}

/// What an accepted config becomes. Buffers have the size that is asked for, so that a sanitizer
/// sees a byte more.
void expect_launchable(const Family& family, const Config& config, const Problem& problem,
                       const DeviceFacts& device) {
  const double estimate_us = family.estimate_us(config, problem, device);
  EXPECT_TRUE(std::isfinite(estimate_us) && estimate_us > 0) << estimate_us;
  const Source source = family.render(config, problem);
  const Launch launch = family.launch(config, problem, device);
  ASSERT_FALSE(launch.steps.empty());
  for (const LaunchStep& step : launch.steps) {
    EXPECT_NE(source.entry.find(step.kernel + "("), std::string::npos);
    EXPECT_GE(step.block.x, 32u);
    EXPECT_LE(step.block.x, 1024u);
    EXPECT_EQ(step.block.x % 32, 0u);
    EXPECT_EQ(step.block.y * step.block.z, 1u);
    EXPECT_GE(step.grid.z, 1u);
    EXPECT_LE(step.grid.z, 65535u);
    EXPECT_GE(step.grid.y, 1u);
    EXPECT_LE(step.grid.y, 65535u);
    EXPECT_GE(step.grid.x, 1u);
    EXPECT_LE(step.grid.x, kMaxGridX);
    EXPECT_GE(step.smem_bytes, 0);
    EXPECT_LE(step.smem_bytes, device.arch.smem_per_block_bytes);
    EXPECT_EQ(test::argument_fault(step), "");
  }
  if (is_backward(problem))
    expect_tiles_cover_keys(config, problem, launch);
  else if (is_attention(problem))
    expect_tiles_cover_queries(config, problem, launch);
  else if (problem.op == Op::kMerge)
    EXPECT_GE(launch.steps[0].grid.x * 8 / config.get("row_warps"),
              problem.batch * problem.num_heads_q * problem.seqlen_q);
}

void expect_refused(const std::function<void()>& body) {
  try {
    body();
    ADD_FAILURE() << "a value that is not allowed was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find(" must be "), std::string::npos) << error.what();
  }
}

class HostileConfigs : public testing::TestWithParam<const Family*> {
 protected:
  const Family& family() const { return *GetParam(); }

  /// Problem, device and candidates of everything that the family serves here.
  template <class Visit>
  void for_each_served(Visit&& visit) const {
    for (const Problem& problem : test::hostile_problems()) {
      for (const char* arch : {"86", "90a"}) {
        const DeviceFacts& device = typical_device(arch);
        const std::vector<Candidate> found = candidates(family(), problem, device);
        if (!found.empty()) visit(problem, device, found);
      }
    }
  }

  void expect_other_fields_refused(const Config& good, const Problem& problem,
                                   const DeviceFacts& device) const {
    Config fewer = good, more = good, swapped = good, unknown = good;
    fewer.fields.pop_back();
    more.fields.emplace_back("more", 1);
    std::swap(swapped.fields.front(), swapped.fields.back());
    unknown.fields.back().first = "unknown";
    std::vector<Config> others = {fewer, more, unknown};
    if (good.fields.size() > 1) others.push_back(swapped);
    for (const Config& config : others)
      EXPECT_NE(illegal(family(), config, problem, device), "") << to_string(config);
  }

  /// Whether the config is accepted. It goes the way of a text from outside.
  bool try_config(const Config& config, const Problem& problem, const DeviceFacts& device) const {
    const std::string text = to_string(config);
    SCOPED_TRACE(to_string(problem) + " on sm_" + std::string(device.arch.name) + "\n  " + text);
    const Config parsed = parse_config(text);
    EXPECT_EQ(parsed, config);
    const std::string reason = illegal(family(), parsed, problem, device);
    if (reason.empty()) expect_launchable(family(), parsed, problem, device);
    if (wrong_value(parsed, family().fields).empty()) return reason.empty();
    EXPECT_NE(reason, "");
    // Nor does one that comes another way than by illegal() reach the family's arithmetic.
    expect_refused([&] { family().illegal(parsed, problem, device); });
    expect_refused([&] { family().needless(parsed, problem, device); });
    expect_refused([&] { family().estimate_us(parsed, problem, device); });
    expect_refused([&] { family().render(parsed, problem); });
    expect_refused([&] { family().launch(parsed, problem, device); });
    return false;
  }
};

TEST_P(HostileConfigs, EveryFieldHasARuleThatTakesWhatIsSearched) {
  for (const Problem& problem : test::hostile_problems()) {
    const DeviceFacts& device = typical_device("90a");
    if (!rejection(family(), problem, device.arch).empty()) continue;
    const std::vector<Axis> axes = family().axes(problem, device);
    ASSERT_EQ(axes.size(), family().fields.size());
    for (std::size_t i = 0; i < axes.size(); ++i) {
      const FieldRule& rule = family().fields[i];
      EXPECT_EQ(axes[i].name, rule.name);
      EXPECT_GE(rule.allowed.least, 0) << rule.name;
      EXPECT_LE(rule.allowed.most, 1 << 30) << rule.name;
      for (const int value : axes[i].values)
        EXPECT_TRUE(rule.allowed.has(value)) << rule.name << "=" << value;
    }
  }
}

TEST_P(HostileConfigs, OneChangedFieldIsRefusedOrCanBeLaunched) {
  int refused = 0;
  for_each_served([&](const Problem& problem, const DeviceFacts& device, const auto& found) {
    for (const Candidate* base : {&found.front(), &found.back()}) {
      EXPECT_TRUE(try_config(base->config, problem, device));
      expect_other_fields_refused(base->config, problem, device);
      for (const Config& config : test::mutations_of(base->config))
        refused += !try_config(config, problem, device);
    }
  });
  EXPECT_GE(refused, family().fields.size() > 1 ? 400 : 40);
}

TEST_P(HostileConfigs, CombinationsThatNobodySearchedAreRefusedOrCanBeLaunched) {
  SCOPED_TRACE(fmt::format("seed {}", kSeed));
  std::mt19937 random(kSeed);
  int accepted = 0;
  for_each_served([&](const Problem& problem, const DeviceFacts& device, const auto& found) {
    for (int i = 0; i < kRecombined; ++i) {
      const Config& base = found[random() % found.size()].config;
      accepted += try_config(test::recombined(family(), base, random), problem, device);
    }
  });
  EXPECT_GE(accepted, 100);
}

INSTANTIATE_TEST_SUITE_P(Registry, HostileConfigs,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST(HostileConfigsOf, PackedHeadsAreThoseOfAKvHead) {
  // 8 packed heads of groups of 3 were accepted and wrote past the output.
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=6:2 seqlen=64:300 head_dim=64");
  for (const char* name : {"fwd_mma_sm80", "fwd_wgmma_sm90a", "fwd_regtile_f32"}) {
    const Family& family = *find_family(name);
    Problem served = problem;
    if (!rejection(family, served, typical_device("90a").arch).empty())
      served.dtype_q = served.dtype_k = served.dtype_v = served.dtype_o = DType::kFp32;
    for (const Candidate& candidate : candidates(family, served, typical_device("90a"))) {
      for (const int pack : {2, 4, 6, 8}) {
        Config config = candidate.config;
        for (auto& [field, value] : config.fields) {
          if (field == "pack_gqa") value = pack;
        }
        EXPECT_NE(illegal(family, config, served, typical_device("90a")), "") << to_string(config);
      }
    }
  }
}

}  // namespace
}  // namespace attnforge
