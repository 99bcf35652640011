// golden_test.cpp - the generated lines of every family against files under version control, so
// that a change of what is generated is seen in review. ATTNFORGE_UPDATE_GOLDEN=1 writes them anew.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

struct GoldenProblem {
  std::string_view name;
  std::string_view text;
};
constexpr GoldenProblem kProblems[] = {
    {"prefill", "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"},
    {"options",
     "fwd fp16 batch=2 num_heads=4 seqlen=100:200 head_dim=40:72 window_left=64 softcap=30 lse "
     "alignment=8"},
    {"fp32", "fwd fp32 batch=1 num_heads=1 seqlen=1024 head_dim=64 lse"},
    {"code",
     "fwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=128 softcap=30 args=\"float* slope, int "
     "reach\" score=\"s + slope[head] * (k - q)\" mask=\"k <= q && q - k < reach\""},
    {"decode", "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 lse"},
    {"pages",
     "fwd bf16 batch=64 num_heads=32:8 seqlen=1:8192 head_dim=128 lengths=used page_size=16"},
    {"gradients", "bwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"},
    {"gradients_options",
     "bwd fp16 batch=2 num_heads=4 seqlen=100:200 head_dim=40:72 window_left=64 softcap=30 "
     "alignment=8 accumulate gradients=fp32"},
    {"gradients_of_arrays",
     "bwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal args=\"float* slope, int n, "
     "fp16* bias\" score=\"s + slope[head] * (k - q) + tanhf(bias[q] * n)\" dargs=\"bias, slope\""},
    {"tf32", "fwd fp32 batch=4 num_heads=8:2 seqlen=2048 head_dim=128 causal tf32"},
};

struct Case {
  const Family* family;
  GoldenProblem problem;
};
std::string name_of(const Case& c) { return fmt::format("{}_{}", c.family->name, c.problem.name); }
void PrintTo(const Case& c, std::ostream* out) { *out << name_of(c); }

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const Family* family : registry()) {
    for (const GoldenProblem& problem : kProblems) {
      if (problem.text.starts_with(to_string(family->op))) cases.push_back({family, problem});
    }
  }
  return cases;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The config that a golden file was made of: it is in its first line.
std::optional<Config> config_of(const std::string& golden) {
  const std::string kStart = "// generated: ";
  if (golden.rfind(kStart, 0) != 0) return std::nullopt;
  return parse_config(golden.substr(kStart.size(), golden.find('\n') - kStart.size()));
}

/// The first arch that the family serves the problem on.
const DeviceFacts* device_for(const Family& family, const Problem& problem) {
  for (const Arch& arch : archs()) {
    if (rejection(family, problem, arch).empty()) return &typical_device(arch.name);
  }
  return nullptr;
}

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, EntryIsAsCommitted) {
  const Family& family = *GetParam().family;
  const Problem problem = parse_problem(GetParam().problem.text);
  const DeviceFacts* device = device_for(family, problem);
  if (device == nullptr)
    GTEST_SKIP() << family.name << " does not serve " << GetParam().problem.text;
  const std::filesystem::path path = std::filesystem::path(ATTNFORGE_GOLDEN_DIR) /
                                     (name_of(GetParam()) + ".cu");
  const std::string golden = read(path);

  if (std::getenv("ATTNFORGE_UPDATE_GOLDEN") != nullptr) {
    const Family* const families[] = {&family};
    const Config config = untuned(families, problem, *device).config;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << family.render(config, problem).entry;
    GTEST_SKIP() << "wrote " << path;
  }
  const std::optional<Config> config = config_of(golden);
  ASSERT_TRUE(config.has_value())
      << path << " is missing or not of this kind; ATTNFORGE_UPDATE_GOLDEN=1 writes it";
  EXPECT_EQ(family.render(*config, problem).entry, golden)
      << "if this is intended, run with ATTNFORGE_UPDATE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Registry, Golden, testing::ValuesIn(all_cases()),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace attnforge
