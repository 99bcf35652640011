#include "generator/user_code/code_tokens.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnforge {
namespace {

bool begins_name(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_decimal(char c) { return c >= '0' && c <= '9'; }
bool in_name(char c) { return begins_name(c) || is_decimal(c); }

}  // namespace

bool CodeToken::is_name() const { return begins_name(text.front()); }
bool CodeToken::is_number() const { return is_decimal(text.front()); }

std::vector<CodeToken> code_tokens(std::string_view text, std::size_t most) {
  std::vector<CodeToken> tokens;
  for (std::size_t at = 0; at < text.size() && tokens.size() < most;) {
    const char c = text[at];
    if (c == ' ' || c == '\n') {
      ++at;
      continue;
    }
    std::size_t end = at + 1;
    if (begins_name(c)) {
      while (end < text.size() && in_name(text[end])) ++end;
    } else if (is_decimal(c) || (c == '.' && end < text.size() && is_decimal(text[end]))) {
      const auto goes_on = [&] {
        const char last = text[end - 1];
        const bool exponent = last == 'e' || last == 'E' || last == 'p' || last == 'P';
        return in_name(text[end]) || text[end] == '.' ||
               (exponent && (text[end] == '+' || text[end] == '-'));
      };
      while (end < text.size() && goes_on()) ++end;
    }
    tokens.push_back({text.substr(at, end - at), at});
    at = end;
  }
  return tokens;
}

std::string line_and_column(std::string_view text, std::size_t at) {
  const std::string_view before = text.substr(0, at);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t begin = before.rfind('\n') == before.npos ? 0 : before.rfind('\n') + 1;
  return fmt::format("line {}, column {}", line, at - begin + 1);
}

}  // namespace attnforge
