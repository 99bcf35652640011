// code_text.cpp - a scanner of C++ tokens (ISO C++20, [lex]) that knows no more than where a
// comment, a literal or a directive begins and ends.
#include "generator/text/code_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace attnforge {
namespace {

enum Kind : unsigned char { kOther, kWord, kBlank, kLonely, kControl };

constexpr std::array<Kind, 256> kKinds = [] {
  std::array<Kind, 256> kinds{};
  const auto set = [&](std::string_view characters, Kind kind) {
    for (const char c : characters) kinds[static_cast<unsigned char>(c)] = kind;
  };
  for (std::size_t c = 0; c < ' '; ++c) kinds[c] = kControl;
  for (std::size_t c = 128; c < 256; ++c) kinds[c] = kWord;
  set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", kWord);
  set(" \t\n", kBlank);
  set("(){}[],;", kLonely);  // in no token but themselves: blanks beside them separate nothing
  return kinds;
}();

Kind kind_of(char c) { return kKinds[static_cast<unsigned char>(c)]; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Whose meaning depends on where in the text it stands.
bool depends_on_place(std::string_view word) {
  switch (word.size()) {
    case 6:
      return word == "assert";
    case 8:
      return word == "__LINE__";
    case 13:
      return word == "__has_include";
    case 14:
      return word == "__builtin_LINE";
    case 15:
      return word == "source_location";
    case 16:
      return word == "__builtin_COLUMN";
  }
  return false;
}

/// Directives that give a line a number, or that look for files.
bool names_place(std::string_view directive) {
  return directive == "line" || directive == "include_next" || directive == "import" ||
         directive == "embed";
}

bool begins_raw_string(std::string_view word) {
  return word == "R" || word == "LR" || word == "uR" || word == "UR" || word == "u8R";
}

/// Whether a comment might not be one, or not end where it seems to: control characters but for
/// those that end lines, a trigraph that is a backslash, a line of a longer comment that looks like
/// a directive and is taken for one where headers are put in their places.
bool is_odd(std::string_view comment) {
  bool line_is_empty = false;
  for (std::size_t i = 0; i < comment.size(); ++i) {
    const char c = comment[i];
    if (kind_of(c) == kControl && comment.substr(i, 2) != "\r\n") return true;
    if (c == '?' && comment.substr(i, 3) == "?\?/") return true;
    if (c == '#' && line_is_empty) return true;
    line_is_empty = c == '\n' || (line_is_empty && kind_of(c) == kBlank);
  }
  return false;
}

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) { out_.reserve(text.size()); }

  /// False: the text has something that is not looked into.
  bool scan() {
    while (at_ < text_.size()) {
      if (!step()) return false;
    }
    return true;
  }
  std::string take() { return std::move(out_); }

 private:
  char peek() const { return at_ + 1 < text_.size() ? text_[at_ + 1] : '\0'; }

  bool step() {
    switch (kind_of(text_[at_])) {
      case kBlank:
        blanks();
        return true;
      case kWord:
        return word();
      case kLonely:
        token(1);
        return true;
      case kOther:
        return other();
      case kControl:  // the end of a line as some editors write it, or who knows
        if (text_[at_] != '\r' || peek() != '\n') return false;
        drop(1);
        return true;
    }
    return false;
  }

  void put(char c) { out_.push_back(c); }
  char last() const { return out_.empty() ? '\n' : out_.back(); }
  void drop(std::size_t size) {
    at_ += size;
    blank_ = true;
  }

  void blanks() {
    for (; at_ < text_.size() && kind_of(text_[at_]) == kBlank; ++at_)
      if (text_[at_] == '\n') end_line();
    blank_ = true;
  }

  void end_line() {
    if (in_directive_) put('\n');
    in_directive_ = names_directive_ = in_include_ = false;
    line_is_empty_ = true;
  }

  /// The next `size` characters, and a blank before them where there was one that may matter.
  void token(std::size_t size) {
    if (blank_) {
      blank_ = false;
      if (last() != '\n' &&
          (in_directive_ || (kind_of(text_[at_]) != kLonely && kind_of(last()) != kLonely)))
        put(' ');
    }
    line_is_empty_ = false;
    out_.append(text_, at_, size);
    at_ += size;
  }

  /// An identifier or a number; of a number also what only numbers have in them.
  bool word() {
    const char* const text = text_.data();
    const std::size_t text_end = text_.size();
    std::size_t end = at_ + 1;
    while (end < text_end && kind_of(text[end]) == kWord) ++end;
    if (is_digit(text[at_]) || text[at_] == '.') {
      while (end < text_end && (kind_of(text[end]) == kWord || in_number(end))) ++end;
    }
    const std::string_view found(text + at_, end - at_);
    if (depends_on_place(found)) return false;
    if (end < text_end && text[end] == '"' && begins_raw_string(found)) return false;
    if (names_directive_ && names_place(found)) return false;
    in_include_ = names_directive_ && found == "include";
    names_directive_ = false;
    token(found.size());
    return true;
  }

  bool in_number(std::size_t at) const {
    const char c = text_[at], last = text_[at - 1];
    if (c == '.') return true;
    if (c == '\'') return at + 1 < text_.size() && kind_of(text_[at + 1]) == kWord;
    return (c == '+' || c == '-') && (last == 'e' || last == 'E' || last == 'p' || last == 'P');
  }

  bool other() {
    switch (text_[at_]) {
      case '/':
        if (peek() == '/') return line_comment();
        if (peek() == '*') return block_comment();
        break;
      case '"':
      case '\'':
        return literal();
      case '#':
        return hash();
      case '\\':
        return splice();
      case '.':
        if (is_digit(peek())) return word();
        break;
      case '<':  // a path from here on, not tokens
        if (in_include_) return false;
        break;
      case '?':
        if (peek() == '?') return false;
        break;
      case '%':
        if (peek() == ':') return false;
        break;
    }
    token(1);
    return true;
  }

  /// A backslash that joins two lines. One that may lie inside of a token is not looked into.
  bool splice() {
    if (peek() != '\n' || !blank_) return false;
    drop(2);
    return true;
  }

  bool line_comment() {
    std::size_t end = std::min(text_.find('\n', at_), text_.size());
    if (end < text_.size() && text_[end - 1] == '\r') --end;
    const std::string_view comment = text_.substr(at_, end - at_);
    // A comment that ends in a backslash, blanks after it or not, may go on in the next line.
    if (comment[comment.find_last_not_of(" \t")] == '\\' || is_odd(comment)) return false;
    drop(comment.size());
    return true;
  }

  bool block_comment() {
    const std::size_t end = text_.find("*/", at_ + 2);
    if (end == text_.npos) return false;
    const std::string_view comment = text_.substr(at_, end + 2 - at_);
    // The end of a comment may be torn in two by a backslash and the end of a line.
    if (comment.find("*\\") != comment.npos || is_odd(comment)) return false;
    drop(comment.size());
    return true;
  }

  bool literal() {
    const char quote = text_[at_];
    std::size_t end = at_ + 1;
    for (; end < text_.size() && text_[end] != quote; ++end) {
      if (text_[end] == '\\') ++end;
      if (end >= text_.size() || text_[end] == '\n' || kind_of(text_[end]) == kControl)
        return false;
      if (text_[end] == '?' && text_.substr(end, 2) == "??") return false;
    }
    if (end >= text_.size()) return false;
    token(end + 1 - at_);
    return true;
  }

  /// A directive, if nothing stands before it in its line.
  bool hash() {
    if (in_directive_ || !line_is_empty_) return false;
    if (last() != '\n') put('\n');
    token(1);
    in_directive_ = names_directive_ = true;
    return true;
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
  bool blank_ = false;         // blank space or a comment before the next token
  bool line_is_empty_ = true;  // so far, but for those
  bool in_directive_ = false;
  bool names_directive_ = false;  // the next word does
  bool in_include_ = false;
};

}  // namespace

std::optional<std::string> code_text(std::string_view text) {
  Scanner scanner(text);
  if (!scanner.scan()) return std::nullopt;
  return scanner.take();
}

}  // namespace attnforge
