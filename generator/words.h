// words.h - takes blank-separated words off the front of a text.
#pragma once

#include <algorithm>
#include <string_view>

namespace attnforge {

/// The first word of `text`, which then begins after it; "" when none is left. Borrows from the
/// text.
inline std::string_view next_word(std::string_view& text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  const std::string_view word = text.substr(0, text.find_first_of(kBlanks));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace attnforge
