#include "cli/options/problems.h"

#include <fmt/ranges.h>
#include <charconv>

#include <algorithm>
#include <iterator>
#include <sstream>

#include "cli/files/text_files.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

// Each begins a problem's text. A new operation of the library gets its word here.
constexpr std::string_view kOperations[] = {"fwd", "bwd", "merge", "append"};

constexpr std::string_view kBetweenWords = " \t\r\n";

constexpr const char* kExample = "fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal";

/// What may stand in a word's place: "seqlen=1,2" is {"seqlen=1", "seqlen=2"}.
std::vector<std::string> choices(const std::string& word) {
  // Commas of code are its own.
  if (word.find(',') == word.npos || word.find('"') != word.npos) return {word};
  const std::size_t equals = word.find('=');
  const std::string name = equals == word.npos ? "" : word.substr(0, equals + 1);
  std::vector<std::string> result;
  for (std::size_t at = name.size(); at <= word.size();) {
    const std::size_t comma = std::min(word.find(',', at), word.size());
    const std::string value = word.substr(at, comma - at);
    if (value.empty()) {
      refuse(kInvalidProblem, "\"{}\" has an empty value; write values like {}1,2", word,
             name.empty() ? "seqlen=" : name);
    }
    result.push_back(name.empty() && value == "full" ? "" : name + value);
    at = comma + 1;
  }
  return result;
}

/// The problem of a text, or all that it sweeps over.
void add_problems(std::string_view text, const ReadText& read, std::vector<Problem>& problems) {
  for (const std::string& one : expand_sweep(text)) problems.push_back(read(one));
}

}  // namespace

bool is_operation(std::string_view word) {
  return std::ranges::find(kOperations, word) != std::end(kOperations);
}

std::string quoted_word(std::string_view name, std::string_view content) {
  std::string word = std::string(name) + '"';
  for (const char c : content) {
    if (c == '"' || c == '\\') word += '\\';
    if (c == '\n')
      word += "\\n";
    else
      word += c;
  }
  return word + '"';
}

std::vector<std::string> split_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (!is_quoted && kBetweenWords.find(c) != kBetweenWords.npos) {
      if (!word.empty()) words.push_back(std::move(word));
      word.clear();
      continue;
    }
    word += c;
    if (c == '"') is_quoted = !is_quoted;
    if (is_quoted && c == '\\' && i + 1 < text.size()) word += text[++i];
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

std::vector<std::string> words_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (const std::string& argument : arguments) {
    const std::size_t equals = argument.find('=');
    const std::string name = equals == argument.npos ? "" : argument.substr(0, equals + 1);
    const bool is_text = name == "score=" || name == "mask=" || name == "args=" || name == "dargs=";
    if (is_text && argument.size() > name.size() && argument[name.size()] != '"') {
      words.push_back(quoted_word(name, std::string_view(argument).substr(name.size())));
      continue;
    }
    const std::vector<std::string> more = split_words(argument);
    words.insert(words.end(), more.begin(), more.end());
  }
  return words;
}

std::vector<std::string> expand_sweep(std::string_view text) {
  std::vector<std::string> texts = {""};
  for (const std::string& word : split_words(text)) {
    std::vector<std::string> longer;
    const std::vector<std::string> values = choices(word);
    if (texts.size() * values.size() > kMostProblems) {
      refuse(kInvalidProblem, "\"{}\" is more than {} problems", text, kMostProblems);
    }
    for (const std::string& before : texts) {
      for (const std::string& value : values)
        longer.push_back(before.empty() || value.empty() ? before + value : before + " " + value);
    }
    texts = std::move(longer);
  }
  return texts;
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
  std::istringstream stream{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    line.resize(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    if (line.back() == '\r') line.pop_back();
    try {
      add_problems(line, read, problems);
    } catch (const Error& error) {
      refuse(error.code(), "{}:{}: {}", name, number, error.what());
    }
  }
  return problems;
}

std::vector<Problem> read_problems(const std::vector<std::string>& arguments,
                                   const std::string& path, const std::string& verb,
                                   const ReadText& read) {
  if (!arguments.empty() && !path.empty()) {
    refuse(kInvalidArgument, "a problem (\"{}\") and --file {} were both given; give one of them",
           fmt::join(arguments, " "), path);
  }
  if (!arguments.empty()) return problems_from_words(arguments, read);
  if (path.empty()) {
    refuse(kInvalidArgument,
           "no problem was given; for example: attnforge {} {}, or --file problems.txt", verb,
           kExample);
  }
  const std::string name = path == "-" ? "standard input" : path;
  std::vector<Problem> problems = problems_from_text(read_text(path, "problem file"), name, read);
  if (problems.empty()) {
    refuse(kInvalidArgument, "{} holds no problem; write one a line, for example: {}", name,
           kExample);
  }
  return problems;
}

std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems,
                                       const std::string& shard) {
  if (shard.empty()) return problems;
  std::size_t index = 0, count = 0;
  const char* const end = shard.data() + shard.size();
  const auto [slash, wrong] = std::from_chars(shard.data(), end, index);
  const bool has_slash = wrong == std::errc() && slash != end && *slash == '/';
  if (!has_slash || std::from_chars(slash + 1, end, count).ptr != end || index >= count)
    refuse(kInvalidArgument, "--shard {}: it is I/N, such as 0/4, with I from 0 to N - 1", shard);
  std::vector<Problem> mine;
  for (std::size_t i = index; i < problems.size(); i += count) mine.push_back(problems[i]);
  return mine;
}

Problem read_problem(const std::vector<std::string>& arguments, const std::string& verb,
                     const ReadText& read) {
  const std::vector<Problem> problems = problems_from_words(arguments, read);
  if (problems.size() == 1) return problems.front();
  if (problems.empty())
    refuse(kInvalidArgument, "no problem was given; for example: attnforge {} {}", verb, kExample);
  refuse(kInvalidArgument, "{} problems were given, but {} takes one at a time", problems.size(),
         verb);
}

}  // namespace attnforge::cli
