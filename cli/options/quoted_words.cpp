#include "cli/options/quoted_words.h"

namespace attnforge::cli {
namespace {

constexpr std::string_view kBetweenWords = " \t\r\n";

}  // namespace

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

}  // namespace attnforge::cli
