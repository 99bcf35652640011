// template_headers_test.cpp - every template header compiles alone with NVRTC, and the emitted
// source with stock nvcc.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compiler.h"
#include "templates/embedded.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

TEST(EmbeddedHeaders, AreTheFilesUnderTemplates) {
  std::set<std::string> on_disk;
  const fs::path root = fs::path(ATTNFORGE_SOURCE_DIR) / "templates";
  for (const auto& entry : fs::recursive_directory_iterator(root)) {
    const std::string name = entry.path().filename();
    if (entry.path().extension() == ".cuh" || name == "config.h" || name == "shape.h" ||
        name.starts_with("params_")) {
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
    EXPECT_NO_THROW(compile(source, arch_named("90a"))) << header.path;
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
        fmt::format("fwd {} num_heads=32:8 seqlen=4096 head_dim=128 causal lse", dtype));
    for (const auto name : known_archs()) {
      if (rejection(family, problem, arch_named(name)).empty())
        return {problem, &typical_device(name)};
    }
  }
  return {};
}

class EmittedSource : public testing::TestWithParam<std::string> {};

TEST_P(EmittedSource, CompilesWithStockNvcc) {
  const std::string nvcc = ATTNFORGE_NVCC;
  if (nvcc.empty()) GTEST_SKIP() << "nvcc was not found when this build was configured";
  const Family& family = *find_family(GetParam());
  const auto [problem, device] = served_by(family);
  ASSERT_NE(device, nullptr) << "no arch serves a long causal prefill";
  const auto all = candidates(family, problem, *device);
  ASSERT_FALSE(all.empty());

  const fs::path folder = fs::path(testing::TempDir()) /
                          fmt::format("attnforge-nvcc-{}-{}", family.name, getpid());
  fs::create_directories(folder);
  std::ofstream(folder / "kernel.cu") << family.render(all.front().config, problem).text;
  const std::string command = fmt::format(
      "cd '{}' && '{}' -std=c++20 -arch=sm_{} -cubin -o kernel.cubin kernel.cu > log 2>&1",
      folder.string(), nvcc, device->arch.name);
  const int status = std::system(command.c_str());
  std::ifstream log(folder / "log");
  EXPECT_EQ(status, 0) << command << "\n" << std::string(std::istreambuf_iterator<char>(log), {});
  EXPECT_TRUE(fs::exists(folder / "kernel.cubin"));
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Families, EmittedSource, testing::ValuesIn(family_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace attnforge
