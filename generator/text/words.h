// words.h - takes blank-separated words off the front of a text; blanks between double quotes do
// not separate.
#pragma once

#include <algorithm>
#include <string_view>

namespace attnforge {

/// The first word of `text`, which then begins after it; "" when none is left. Quotes are part of
/// it, and between them a backslash takes its meaning from the character after it. Borrows from the
/// text.
inline std::string_view next_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  std::size_t end = std::min(text.find_first_of(" \t\r\n\""), text.size());
  for (bool quoted = false; end < text.size(); ++end) {
    const char c = text[end];
    if (c == '"')
      quoted = !quoted;
    else if (quoted && c == '\\')
      ++end;
    else if (!quoted && kBlanks.find(c) != kBlanks.npos)
      break;
  }
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(word.size());
  return word;
}

}  // namespace attnforge
