// golden_test.cpp - generated entries against files under version control, so that a change of what
// is generated is seen in review. ATTNFORGE_UPDATE_GOLDEN=1 writes them anew.
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

/// One of each thing that an entry may have; what each family makes of its configs is for the
/// compilers.
struct Case {
  std::string_view name, family, problem;
};
constexpr Case kCases[] = {
    {"plain", "fwd_mma_sm80",
     "fwd fp16 batch=2 num_heads=4 seqlen=100:200 head_dim=40:72 window_left=64 softcap=30 lse "
     "alignment=8"},
    {"products", "fwd_wgmma_sm90a",
     "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal"},
    {"splits", "fwd_mma_sm80", "fwd bf16 batch=1 num_heads=32:8 seqlen=1:65536 head_dim=128 lse"},
    {"lists", "fwd_wgmma_sm90a",
     "fwd bf16 batch=2 num_heads=16 seqlen=4096 head_dim=128 lengths=packed blocks=64"},
    {"code", "fwd_mma_sm80",
     "fwd bf16 batch=1 num_heads=16 seqlen=4096 head_dim=128 softcap=30 args=\"float* slope, int "
     "reach\" score=\"s + slope[head] * (k - q)\" mask=\"k <= q && q - k < reach\""},
    {"backward", "bwd_mma_sm80",
     "bwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal args=\"float* slope, int n, "
     "fp16* bias\" score=\"s + slope[head] * (k - q) + tanhf(bias[q] * n)\" dargs=\"bias, slope\""},
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

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

class Golden : public testing::TestWithParam<Case> {};

TEST_P(Golden, EntryIsAsCommitted) {
  const Family& family = *find_family(GetParam().family);
  const Problem problem = parse_problem(GetParam().problem);
  const DeviceFacts& device = typical_device("90a");
  const std::filesystem::path path = std::filesystem::path(ATTNFORGE_GOLDEN_DIR) /
                                     fmt::format("{}.cu", GetParam().name);
  const std::string golden = read(path);

  if (std::getenv("ATTNFORGE_UPDATE_GOLDEN") != nullptr) {
    const Family* const families[] = {&family};
    const Config config = untuned(families, problem, device).config;
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

INSTANTIATE_TEST_SUITE_P(Entries, Golden, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace attnforge
