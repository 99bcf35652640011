// problem_table_test.cpp - docs/PROBLEM.md has the table of words that the program's help shows.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "attnforge/problem_words.h"

namespace attnforge {
namespace {

std::string table() {
  std::string text = "| Word | Means | Default | Values |\n| --- | --- | --- | --- |\n";
  for (const ProblemWord& word : problem_words()) {
    text += fmt::format("| `{}` | {} | {} | {} |\n", word.form, word.meaning, word.fallback,
                        word.allowed);
  }
  return text;
}

TEST(ProblemTable, IsTheTableOfTheDocs) {
  std::ifstream file(std::string(ATTNFORGE_SOURCE_DIR) + "/docs/PROBLEM.md");
  const std::string docs{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(docs.find("\n" + table() + "\n"), std::string::npos)
      << "docs/PROBLEM.md must have this table:\n"
      << table();
}

}  // namespace
}  // namespace attnforge
