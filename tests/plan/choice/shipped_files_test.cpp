// shipped_files_test.cpp - data/winners: of every line the problem is one that a plan asks for, the
// config one that it may use, and the machine code that of today's sources.
// ATTNFORGE_UPDATE_GOLDEN=1 renews digests, and leaves out what must be measured again.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "cache/rows.h"
#include "cache/shipped.h"
#include "cli/options/problems.h"
#include "generator/arch.h"
#include "generator/problem/bucket.h"
#include "plan/choice/choice.h"
#include "runtime/compile/compiler.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kCompiled = 8;  // of a file, where sources changed
constexpr const char* kRenew =
    "If that is meant: ATTNFORGE_UPDATE_GOLDEN=1 ctest -R ShippedFiles leaves out what has other "
    "machine code now; measure it again as data/winners/README.md says.";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<fs::path> files() {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(ATTNFORGE_WINNERS_DIR))
    if (entry.path().extension() == ".jsonl") all.push_back(entry.path());
  return all;
}

const DeviceFacts& gpu_of(const Shipped& winner) {
  return typical_device(std::to_string(sm_of_device_class(winner.best.device_class)));
}

Rendered today(const Shipped& winner) {
  return rendered(parse_config(winner.best.config), parse_problem(winner.best.problem), {});
}

std::string code_today(const Shipped& winner) {
  return test::compiled(today(winner).source, gpu_of(winner).arch).code;
}

bool same_compiler(const Shipped& winner) {
  return nvrtc_facts().available && nvrtc_facts().version_text() == winner.best.nvrtc;
}

/// The winner with today's digests; nothing if its machine code is not the one that was measured.
std::optional<Shipped> renewed(Shipped winner) {
  const std::string digest = today(winner).digest;
  const bool is_new = winner.code.empty();
  if (winner.best.digest == digest && !is_new) return winner;
  if (is_new && winner.best.digest != digest) return std::nullopt;
  const std::string code = code_today(winner);
  if (!is_new && code != winner.code) return std::nullopt;
  winner.code = code;
  winner.best.digest = digest;
  return winner;
}

void renew(const fs::path& path) {
  std::vector<Shipped> kept;
  for (const Shipped& winner : read_winners(text_of(path))) {
    ASSERT_TRUE(same_compiler(winner)) << path << " was measured with NVRTC " << winner.best.nvrtc
                                       << ", here is " << nvrtc_facts().version_text();
    if (const auto same = renewed(winner))
      kept.push_back(*same);
    else
      std::cout << "measure again: " << winner.best.problem << "\n";
  }
  std::ofstream(path, std::ios::binary) << winners_text(kept);
}

TEST(ShippedFiles, AreTheMachineCodeThatWasMeasured) {
  for (const fs::path& path : files()) {
    if (std::getenv("ATTNFORGE_UPDATE_GOLDEN") != nullptr) renew(path);
    std::vector<Shipped> changed;
    for (const Shipped& winner : read_winners(text_of(path))) {
      EXPECT_FALSE(winner.code.empty())
          << winner.best.problem << " of " << path << " has no code yet. " << kRenew;
      if (winner.best.digest != today(winner).digest) changed.push_back(winner);
    }
    if (changed.empty()) continue;
    // Plans compile these and compare: they stay winners where that gives equal code.
    if (!same_compiler(changed.front()))
      GTEST_SKIP() << "needs NVRTC " << changed.front().best.nvrtc;
    const std::size_t step = (changed.size() + kCompiled - 1) / kCompiled;
    for (std::size_t i = 0; i < changed.size(); i += step) {
      EXPECT_EQ(code_today(changed[i]), changed[i].code)
          << changed[i].best.config << "\nof \"" << changed[i].best.problem << "\" in " << path
          << " has other machine code than was measured: it no longer ships a winner. " << kRenew;
    }
  }
}

TEST(ShippedFiles, HoldProblemsThatPlansAskForAndConfigsThatTheyMayUse) {
  for (const fs::path& path : files()) {
    std::map<std::string, std::string> classes;
    std::set<std::string> problems;
    for (const Shipped& winner : read_winners(text_of(path))) {
      const Problem problem = parse_problem(winner.best.problem);
      EXPECT_EQ(to_string(bucket(problem)), winner.best.problem) << path;
      EXPECT_TRUE(problems.insert(winner.best.problem).second) << "twice: " << winner.best.problem;
      EXPECT_EQ(illegal(parse_config(winner.best.config), problem, gpu_of(winner)), "")
          << winner.best.problem << " in " << path;
      EXPECT_GT(winner.best.measurement.time_us, 0) << winner.best.problem;
      classes[winner.best.device_class] = path.string();
    }
    EXPECT_EQ(classes.size(), 1u) << path;
  }
}

TEST(ShippedFiles, OfShapesHaveOneBucketEach) {
  std::map<std::string, std::string> seen;
  std::istringstream lines(text_of(fs::path(ATTNFORGE_WINNERS_DIR) / "shapes.txt"));
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(' ') == line.npos) continue;
    for (const std::string& text : cli::expand_sweep(line)) {
      ++count;
      const auto [other, is_new] = seen.emplace(to_string(bucket(parse_problem(text))), text);
      EXPECT_TRUE(is_new) << text << " and " << other->second << " are tuned as one";
    }
  }
  EXPECT_GT(count, 300);
}

}  // namespace
}  // namespace attnforge
