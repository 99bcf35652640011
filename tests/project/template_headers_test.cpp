// template_headers_test.cpp - every template header compiles alone with NVRTC, and the emitted
// source with stock nvcc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/inspect.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/embedded.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

TEST(EmbeddedHeaders, AreTheFilesUnderTemplates) {
  std::set<std::string> on_disk;
  const fs::path root = fs::path(ATTNFORGE_SOURCE_DIR) / "templates";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".cuh" || name == "config.h" || name == "low_bits.h" ||
        name == "shape.h" || name == "params.h" || name == "base_params.h") {
      on_disk.insert(fs::relative(entry.path(), root));
    }
  }
  std::set<std::string> embedded;
  for (const auto& header : embedded_headers()) {
    embedded.emplace(header.path);
    std::ifstream file(root / header.path);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_EQ(header.text, text) << header.path;
  }
  EXPECT_EQ(embedded, on_disk);
}

/// Of products and the oracle: what the others include is there, too. Parameters are names: they
/// are what a test run prints.
std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const Family* family : registry()) {
    if (family->tier != Tier::kLadder) names.emplace_back(family->name);
  }
  return names;
}

TEST(TemplateHeaders, CompileAlone) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  for (const Header& header : embedded_headers()) {
    Source source;
    source.name = "alone";
    source.entry = fmt::format("#include \"{}\"\nextern \"C\" __global__ void alone() {{}}\n",
                               header.path);
    flatten(source, embedded_headers());
    EXPECT_NO_THROW(test::check_cpp(source, arch_named("90a"))) << header.path;
  }
}

/// A problem that the family serves, and a GPU on which it does.
struct Served {
  Problem problem;
  const DeviceFacts* device = nullptr;
};
Served served_by(const Family& family) {
  for (const char* dtype : {"bf16", "fp32"}) {
    const Problem problem = parse_problem(
        family.op == Op::kAppend
            ? fmt::format("append {} num_heads=32 seqlen=4096 head_dim=64", dtype)
        : family.op == Op::kMerge
            ? fmt::format("merge {} num_heads=32 seqlen=4096 head_dim=64 parts=2", dtype)
            : fmt::format("{} {} num_heads=32:8 seqlen=4096 head_dim=64 causal{}",
                          to_string(family.op), dtype, family.op == Op::kForward ? " lse" : ""));
    for (const auto name : known_archs()) {
      if (rejection(family, problem, arch_named(name)).empty())
        return {problem, &typical_device(name)};
    }
  }
  return {};
}

/// The emitted file of a family, in a folder of its own.
class EmittedSource : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (std::string(ATTNFORGE_NVCC).empty())
      GTEST_SKIP() << "nvcc was not found when this build was configured";
    const auto [problem, device] = served_by(*find_family(GetParam()));
    ASSERT_NE(device, nullptr) << "no arch serves a long causal prefill";
    fs::create_directories(folder_);
    const Inspection inspection = inspect(problem, *device,
                                          {.config = smallest_config(problem, *device),
                                           .family = GetParam(),
                                           .cache_path = ":memory:",
                                           .compile = false});
    source_ = inspection.source;
    std::ofstream(folder_ / "kernel.cu") << source_;
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// The one whose kernel compiles fastest.
  static std::string smallest_config(const Problem& problem, const DeviceFacts& device) {
    const Family& family = *find_family(GetParam());
    const auto area = [&](const Candidate& each) {
      const TileShape tile = family.tile_shape(each.config, problem);
      return tile.block_m * tile.block_n;
    };
    return to_string(std::ranges::min(candidates(family, problem, device), {}, area).config);
  }

  /// The command of the file's first line, as a user would paste it.
  std::string command() const {
    const std::string line = source_.substr(0, source_.find('\n'));
    EXPECT_EQ(line.substr(0, 8), "// nvcc ") << line;
    return line.substr(8);
  }
  /// The exit status and what was printed.
  std::pair<int, std::string> nvcc(const std::string& arguments) const {
    const int status = std::system(
        fmt::format("cd '{}' && '{}' {} > log 2>&1", folder_.string(), ATTNFORGE_NVCC, arguments)
            .c_str());
    std::ifstream log(folder_ / "log");
    return {status, {std::istreambuf_iterator<char>(log), {}}};
  }

  const fs::path folder_ = fs::path(testing::TempDir()) /
                           fmt::format("attnforge-nvcc-{}-{}", GetParam(), getpid());
  std::string source_;
};

/// With the same nvcc, which brings the same g++ as this program's, the same file is compiled once.
TEST_P(EmittedSource, CompilesByTheCommandOfItsFirstLine) {
  const std::string compilers = nvcc("--version").second + __VERSION__;
  EXPECT_TRUE(test::passed(compilers + "\n" + source_, [&] {
    const auto [status, log] = nvcc(command());
    EXPECT_EQ(status, 0) << command() << "\n" << log;
    return status == 0 && fs::exists(folder_ / "kernel.o");
  }));
}

/// What says so stands before all in which families differ.
class EmittedSourceOfAnyFamily : public EmittedSource {};

TEST_P(EmittedSourceOfAnyFamily, SaysInOneLineThatItNeedsCpp20) {
  std::string older = command();
  older.replace(older.find("-std=c++20"), 10, "-std=c++17");
  const auto [status, log] = nvcc(older);
  EXPECT_NE(status, 0);
  EXPECT_NE(log.find("this file needs C++20: nvcc -std=c++20"), std::string::npos) << log;
  const std::regex error("error: ");
  EXPECT_EQ(std::distance(std::sregex_iterator(log.begin(), log.end(), error), {}), 1)
      << "its own and no other: " << log;
}

INSTANTIATE_TEST_SUITE_P(Oracle, EmittedSourceOfAnyFamily, testing::Values("fwd_naive"),
                         [](const auto& test) { return test.param; });

INSTANTIATE_TEST_SUITE_P(Families, EmittedSource, testing::ValuesIn(family_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attnforge
