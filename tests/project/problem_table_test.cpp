// problem_table_test.cpp - docs/PROBLEM.md has the table of words that the program's help shows.
// ATTNFORGE_UPDATE_GOLDEN=1 writes it there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "attnforge/problem_words.h"

namespace attnforge {
namespace {

constexpr std::string_view
    kHead = "\n| Word | Means | Default | Values |\n| --- | --- | --- | --- |\n";

std::string table() {
  std::string text(kHead);
  for (const ProblemWord& word : problem_words()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", word.form, word.meaning, word.fallback,
                        word.allowed);
  }
  return text;
}

TEST(ProblemTable, IsTheTableOfTheDocs) {
  const std::string path = std::string(ATTNFORGE_SOURCE_DIR) + "/docs/PROBLEM.md";
  std::ifstream file(path);
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  const std::size_t begin = docs.find(kHead), end = docs.find("\n\n", begin + 1);
  ASSERT_NE(begin, std::string::npos);
  if (std::getenv("ATTNFORGE_UPDATE_GOLDEN") != nullptr)
    std::ofstream(path) << docs.substr(0, begin) << table() << docs.substr(end + 1);
  EXPECT_EQ(docs.substr(begin, end + 1 - begin), table())
      << "ATTNFORGE_UPDATE_GOLDEN=1 writes it; then run tools/c_words.py and tools/api_pages.py";
}

}  // namespace
}  // namespace attnforge
