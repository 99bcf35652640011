// environment_table_test.cpp - every ATTNFORGE_ variable that the sources read is in the table that
// doctor and the docs show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>

#include "attnforge/inspect.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

std::set<std::string> matches(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    found.insert((*it)[1].str());
  }
  return found;
}

/// Every source but the table itself, in one text.
const std::string& sources() {
  static const std::string text = [] {
    std::string all;
    for (const char* folder : {"generator", "templates", "reference", "runtime", "cache", "tuner",
                               "plan", "cli", "python"}) {
      for (const auto& entry :
           fs::recursive_directory_iterator(fs::path(ATTNFORGE_SOURCE_DIR) / folder)) {
        const auto extension = entry.path().extension();
        if (extension != ".cpp" && extension != ".h" && extension != ".py") continue;
        if (entry.path() == fs::path(ATTNFORGE_SOURCE_DIR) / "plan/tools/environment.cpp") continue;
        all += text_of(entry.path());
      }
    }
    return all;
  }();
  return text;
}

/// What getenv and os.environ are given, and every ATTNFORGE_ name in quotes: helpers take those.
std::set<std::string> read_by_sources() {
  auto names = matches(sources(), std::regex("getenv\\(\"([A-Z0-9_]+)\"\\)"));
  names.merge(matches(sources(), std::regex("environ(?:\\.get\\(|\\[)\"([A-Z0-9_]+)\"")));
  names.merge(matches(sources(), std::regex("\"(ATTNFORGE_[A-Z0-9_]+)\"")));
  return names;
}

std::set<std::string> listed() {
  std::set<std::string> names;
  for (const auto& variable : environment_variables()) names.insert(variable.name);
  return names;
}

TEST(EnvironmentTable, ListsEveryVariableThatTheSourcesRead) {
  const auto names = listed();
  const auto read = read_by_sources();
  ASSERT_TRUE(read.count("ATTNFORGE_CACHE"));
  for (const auto& name : read)
    EXPECT_TRUE(names.count(name)) << name << " is read but not in environment_variables()";
}

TEST(EnvironmentTable, ListsNothingThatNobodyReads) {
  for (const auto& name : listed()) {
    if (name == "NVTX_INJECTION64_PATH") continue;  // read by NVTX's own header
    EXPECT_NE(sources().find('"' + name + '"'), std::string::npos)
        << name << " is listed but nothing reads it";
  }
}

TEST(EnvironmentTable, SaysWhatEachIsForAndItsDefault) {
  for (const auto& variable : environment_variables()) {
    EXPECT_FALSE(variable.meaning.empty()) << variable.name;
    EXPECT_FALSE(variable.fallback.empty()) << variable.name;
  }
}

TEST(EnvironmentTable, IsTheTableOfTheDocs) {
  const auto documented = matches(text_of(fs::path(ATTNFORGE_SOURCE_DIR) / "docs/ENVIRONMENT.md"),
                                  std::regex("\\| `([A-Z0-9_]+)` \\|"));
  EXPECT_EQ(documented, listed());
}

}  // namespace
}  // namespace attnforge
