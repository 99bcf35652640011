#include "generator/user_code/code_terms.h"

namespace attnforge {
namespace {

/// What && joins outside of brackets.
std::vector<Code> joined_terms(Code tokens) {
  std::vector<Code> terms;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = tokens[i].text;
    if (text == "(" || text == "[" || text == "{") ++depth;
    if (text == ")" || text == "]" || text == "}") --depth;
    if (depth != 0) continue;
    if (text == "|" || text == "^" || text == "?" || text == "," || text == "and" || text == "or" ||
        text == "xor")
      return {tokens};
    if (touch(tokens, i, "&", "&")) {
      terms.push_back(tokens.subspan(begin, i - begin));
      begin = ++i + 1;
    }
  }
  terms.push_back(tokens.subspan(begin));
  return terms;
}

/// Whether the first token's bracket is closed by the last one.
bool is_bracketed(Code tokens) {
  if (tokens.size() < 3 || tokens.front().text != "(") return false;
  int depth = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].text == "(") ++depth;
    if (tokens[i].text == ")" && --depth == 0) return i + 1 == tokens.size();
  }
  return false;
}

void add_terms(Code tokens, std::vector<Code>& terms, int depth) {
  constexpr int kMostDepth = 64;
  for (Code term : joined_terms(tokens)) {
    for (int i = 0; i < kMostDepth && is_bracketed(term); ++i)
      term = term.subspan(1, term.size() - 2);
    if (depth < kMostDepth && joined_terms(term).size() > 1)
      add_terms(term, terms, depth + 1);
    else
      terms.push_back(term);
  }
}

}  // namespace

bool touch(Code tokens, std::size_t i, std::string_view first, std::string_view second) {
  return i + 1 < tokens.size() && tokens[i].text == first && tokens[i + 1].text == second &&
         tokens[i].end() == tokens[i + 1].at;
}

bool may_assign(Code tokens) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::string_view text = tokens[i].text;
    if (text == "and_eq" || text == "or_eq" || text == "xor_eq") return true;
    if (touch(tokens, i, "+", "+") || touch(tokens, i, "-", "-")) return true;
    if (touch(tokens, i, "<", "<") || touch(tokens, i, ">", ">")) {
      if (touch(tokens, i + 1, text, "=")) return true;
      ++i;
      continue;
    }
    const bool compares = touch(tokens, i, "=", "=") || touch(tokens, i, "!", "=") ||
                          touch(tokens, i, "<", "=") || touch(tokens, i, ">", "=");
    if (compares)
      ++i;
    else if (text == "=")
      return true;
  }
  return false;
}

std::vector<Code> terms_of(Code tokens) {
  std::vector<Code> terms;
  add_terms(tokens, terms, 0);
  return terms;
}

}  // namespace attnforge
