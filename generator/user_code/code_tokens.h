// code_tokens.h - the tokens of a text of the user's C++.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace attnforge {

/// A name, a number, or one other character; operators of two characters are two tokens.
struct CodeToken {
  std::string_view text;
  std::size_t at = 0;  // in the whole text

  std::size_t end() const { return at + text.size(); }
  bool is_name() const;
  bool is_number() const;
};

inline constexpr std::size_t kAllTokens = static_cast<std::size_t>(-1);
/// The first `most` tokens of printable ASCII with blanks and ends of lines between them.
std::vector<CodeToken> code_tokens(std::string_view text, std::size_t most = kAllTokens);

/// "line 1, column 5": where byte `at` of a text is.
std::string line_and_column(std::string_view text, std::size_t at);

}  // namespace attnforge
