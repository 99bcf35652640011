#include "cli/options/sweep.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"
#include "cli/options/quoted_words.h"

namespace attnforge::cli {
namespace {

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
      throw Error(ErrorCode::kInvalidProblem,
                  fmt::format("\"{}\" has an empty value; write values like {}1,2", word,
                              name.empty() ? "seqlen=" : name));
    }
    result.push_back(name.empty() && value == "full" ? "" : name + value);
    at = comma + 1;
  }
  return result;
}

}  // namespace

std::vector<std::string> expand_sweep(std::string_view text) {
  std::vector<std::string> texts = {""};
  for (const std::string& word : split_words(text)) {
    std::vector<std::string> longer;
    const std::vector<std::string> values = choices(word);
    if (texts.size() * values.size() > kMostProblems) {
      throw Error(ErrorCode::kInvalidProblem,
                  fmt::format("\"{}\" is more than {} problems", text, kMostProblems));
    }
    for (const std::string& before : texts) {
      for (const std::string& value : values)
        longer.push_back(before.empty() || value.empty() ? before + value : before + " " + value);
    }
    texts = std::move(longer);
  }
  return texts;
}

}  // namespace attnforge::cli
