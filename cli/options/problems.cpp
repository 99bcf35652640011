#include "cli/options/problems.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "attnforge/error.h"
#include "cli/files/read_text.h"
#include "cli/options/quoted_words.h"
#include "cli/options/sweep.h"

namespace attnforge::cli {
namespace {

// Each begins a problem's text. A new operation of the library gets its word here.
constexpr std::string_view kOperations[] = {"fwd", "bwd", "merge"};

constexpr const char* kExample = "fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal";

/// The problem of a text, or all that it sweeps over.
void add_problems(std::string_view text, const ReadText& read, std::vector<Problem>& problems) {
  for (const std::string& one : expand_sweep(text)) problems.push_back(read(one));
}

}  // namespace

bool is_operation(std::string_view word) {
  return std::ranges::find(kOperations, word) != std::end(kOperations);
}

std::vector<std::string> names_of(const std::string& list) {
  std::vector<std::string> names;
  std::istringstream stream(list);
  for (std::string name; std::getline(stream, name, ',');) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

std::vector<Problem> problems_from_words(const std::vector<std::string>& arguments,
                                         const ReadText& read) {
  std::vector<std::string> texts;
  for (const std::string& word : words_of(arguments)) {
    if (texts.empty() || is_operation(word)) {
      texts.push_back(word);
    } else {
      texts.back() += " " + word;
    }
  }
  std::vector<Problem> problems;
  for (const std::string& text : texts) add_problems(text, read, problems);
  return problems;
}

std::vector<Problem> problems_from_text(std::string_view text, const std::string& name,
                                        const ReadText& read) {
  std::vector<Problem> problems;
  int number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    line = line.substr(0, line.find('#'));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (line.back() == '\r') line.remove_suffix(1);
    try {
      add_problems(line, read, problems);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}:{}: {}", name, number, error.what()));
    }
  }
  return problems;
}

std::vector<Problem> read_problems(const std::vector<std::string>& arguments,
                                   const std::string& path, const std::string& verb,
                                   const ReadText& read) {
  if (!arguments.empty() && !path.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("a problem (\"{}\") and --file {} were both given; give one of them",
                            fmt::join(arguments, " "), path));
  }
  if (!arguments.empty()) return problems_from_words(arguments, read);
  if (path.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("no problem was given; for example: attnforge {} {}, or --file problems.txt",
                    verb, kExample));
  }
  const std::string name = path == "-" ? "standard input" : path;
  std::vector<Problem> problems = problems_from_text(read_text(path, "problem file"), name, read);
  if (problems.empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} holds no problem; write one a line, for example: {}", name, kExample));
  }
  return problems;
}

Problem read_problem(const std::vector<std::string>& arguments, const std::string& verb,
                     const ReadText& read) {
  const std::vector<Problem> problems = problems_from_words(arguments, read);
  if (problems.size() == 1) return problems.front();
  throw Error(ErrorCode::kInvalidArgument,
              problems.empty() ? fmt::format("no problem was given; for example: attnforge {} {}",
                                             verb, kExample)
                               : fmt::format("{} problems were given, but {} takes one at a time",
                                             problems.size(), verb));
}

}  // namespace attnforge::cli
