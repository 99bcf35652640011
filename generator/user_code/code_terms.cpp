#include "generator/user_code/code_terms.h"

#include <cstddef>
#include <utility>

namespace attnforge {
namespace {

/// Takes a text apart. Each token is looked at once at every depth of terms that it is in, and what
/// is between brackets not at all where these are part of a term.
class TermCutter {
 public:
  explicit TermCutter(Code tokens) : tokens_(tokens), closes_(tokens.size(), 0) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const char c = tokens[i].text.front();
      if (c == '(' || c == '[' || c == '{') open.push_back(i);
      if ((c == ')' || c == ']' || c == '}') && !open.empty()) {
        closes_[open.back()] = i;
        open.pop_back();
      }
    }
  }

  std::vector<Code> cut() {
    add_terms({0, tokens_.size()}, 0);
    return std::move(terms_);
  }

 private:
  struct Range {
    std::size_t begin, end;
  };

  /// What && joins outside of brackets.
  std::vector<Range> joined_terms(Range range) const {
    std::vector<Range> terms;
    std::size_t begin = range.begin;
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (closes_[i] != 0) {
        i = closes_[i];
        continue;
      }
      const std::string_view text = tokens_[i].text;
      if (text == "|" || text == "^" || text == "?" || text == "," || text == "and" ||
          text == "or" || text == "xor")
        return {range};
      if (touch(tokens_.first(range.end), i, "&", "&")) {
        terms.push_back({begin, i});
        begin = ++i + 1;
      }
    }
    terms.push_back({begin, range.end});
    return terms;
  }

  /// Whether the first token's bracket is closed by the last one.
  bool is_bracketed(Range range) const {
    return range.end - range.begin >= 3 && tokens_[range.begin].text == "(" &&
           closes_[range.begin] + 1 == range.end;
  }

  void add_terms(Range range, int depth) {
    constexpr int kMostDepth = 64;
    for (Range term : joined_terms(range)) {
      for (int i = 0; i < kMostDepth && is_bracketed(term); ++i) ++term.begin, --term.end;
      if (depth < kMostDepth && joined_terms(term).size() > 1)
        add_terms(term, depth + 1);
      else
        terms_.push_back(tokens_.subspan(term.begin, term.end - term.begin));
    }
  }

  const Code tokens_;
  std::vector<std::size_t> closes_;  // where a bracket that opens at a token closes; 0: nowhere
  std::vector<Code> terms_;
};

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

std::vector<Code> terms_of(Code tokens) { return TermCutter(tokens).cut(); }

}  // namespace attnforge
