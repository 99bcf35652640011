#include "generator/user_code/code_tree.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "generator/user_code/code_tokens.h"

namespace attnforge {
namespace {

struct UnknownCode {
  std::string what;
  std::size_t at;  // in the text
};

struct Binary {
  std::string_view text;
  int level;  // a higher one binds more tightly
  CodeOp op;
};
// Longer ones before those that they begin with.
constexpr Binary kBinaries[] = {
    {"||", 0, CodeOp::kOr},         {"or", 0, CodeOp::kOr},       {"&&", 1, CodeOp::kAnd},
    {"and", 1, CodeOp::kAnd},       {"<<", 7, CodeOp::kLeft},     {">>", 7, CodeOp::kRight},
    {"==", 5, CodeOp::kEqual},      {"!=", 5, CodeOp::kUnequal},  {"not_eq", 5, CodeOp::kUnequal},
    {"<=", 6, CodeOp::kAtMost},     {">=", 6, CodeOp::kAtLeast},  {"|", 2, CodeOp::kAnyBits},
    {"bitor", 2, CodeOp::kAnyBits}, {"^", 3, CodeOp::kOtherBits}, {"xor", 3, CodeOp::kOtherBits},
    {"&", 4, CodeOp::kBits},        {"bitand", 4, CodeOp::kBits}, {"<", 6, CodeOp::kBelow},
    {">", 6, CodeOp::kAbove},       {"+", 8, CodeOp::kPlus},      {"-", 8, CodeOp::kMinus},
    {"*", 9, CodeOp::kTimes},       {"/", 9, CodeOp::kDivide},    {"%", 9, CodeOp::kRest}};

constexpr std::pair<std::string_view, CodeOp> kUnaries[] = {{"-", CodeOp::kNegative},
                                                            {"!", CodeOp::kNot},
                                                            {"not", CodeOp::kNot},
                                                            {"~", CodeOp::kInverse},
                                                            {"compl", CodeOp::kInverse}};

constexpr std::pair<std::string_view, CodeOp> kPlaceNames[] = {
    {"batch", CodeOp::kBatch}, {"head", CodeOp::kHead},        {"q", CodeOp::kQ},
    {"k", CodeOp::kK},         {"seqlen_q", CodeOp::kSeqlenQ}, {"seqlen_kv", CodeOp::kSeqlenKv}};

constexpr std::pair<std::string_view, CodeOp> kCasts[] = {{"int", CodeOp::kWhole},
                                                          {"bool", CodeOp::kBool},
                                                          {"float", CodeOp::kFloat},
                                                          {"double", CodeOp::kFloat}};

/// Reads a text by the precedences of C++; throws UnknownCode at what it does not know.
class TreeReader {
 public:
  TreeReader(std::string_view text, CodeText kind, const std::vector<CodeArgument>& arguments,
             std::vector<CodeNode>& nodes)
      : tokens_(code_tokens(text)),
        end_(text.size()),
        kind_(kind),
        arguments_(arguments),
        nodes_(nodes) {}

  void read() {
    choice();
    if (at_ < tokens_.size()) stop();
  }

 private:
  std::size_t place(std::size_t token) const {
    return token < tokens_.size() ? tokens_[token].at : end_;
  }
  [[noreturn]] void stop() const {
    throw UnknownCode{at_ < tokens_.size() ? fmt::format("it has \"{}\"", tokens_[at_].text)
                                           : std::string("it ends too early"),
                      place(at_)};
  }
  [[noreturn]] void stop(std::string what, std::size_t token) const {
    throw UnknownCode{std::move(what), place(token)};
  }
  std::string_view peek(std::size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() ? tokens_[at_ + ahead].text : std::string_view();
  }
  bool skip(std::string_view token) {
    if (peek() != token) return false;
    ++at_;
    return true;
  }
  void want(std::string_view token) {
    if (!skip(token)) stop();
  }
  bool touches_next(std::size_t i) const {
    return i + 1 < tokens_.size() && tokens_[i].end() == tokens_[i + 1].at;
  }

  int add(CodeNode node) {
    nodes_.push_back(node);
    return static_cast<int>(nodes_.size()) - 1;
  }
  bool is_float(int node) const { return nodes_[static_cast<std::size_t>(node)].is_float; }
  int number(double value, bool is_float = false) {
    return add({.op = CodeOp::kNumber, .number = value, .is_float = is_float});
  }

  /// The operator that begins here, and how many tokens it has; 0: none.
  std::size_t binary(const Binary*& found) const {
    for (const Binary& each : kBinaries) {
      const bool is_word = peek() == each.text;
      const bool is_pair = each.text.size() == 2 && peek() == each.text.substr(0, 1) &&
                           touches_next(at_) && peek(1) == each.text.substr(1);
      if (!is_word && !is_pair) continue;
      const std::size_t count = is_word ? 1 : 2;
      // "+=", "<<=", "++", "->": other operators.
      const std::size_t last = at_ + count - 1;
      if (touches_next(last) &&
          (tokens_[last + 1].text == "=" || (is_word && tokens_[last + 1].text == each.text &&
                                             (each.text == "+" || each.text == "-"))))
        stop();
      found = &each;
      return count;
    }
    return 0;
  }

  int choice() {
    const int condition = operation(0);
    if (!skip("?")) return condition;
    const int yes = nested(&TreeReader::choice);
    want(":");
    const int no = nested(&TreeReader::choice);
    return add({.op = CodeOp::kChoice,
                .a = condition,
                .b = yes,
                .c = no,
                .is_float = is_float(yes) || is_float(no)});
  }

  /// An expression of operators that bind as tightly as `least` or more.
  int operation(int least) {
    int left = unary();
    const Binary* found = nullptr;
    for (;;) {
      const std::size_t operator_at = at_, tokens = binary(found);
      if (tokens == 0 || found->level < least) return left;
      at_ += tokens;
      left = joined(found->op, left, operation(found->level + 1), operator_at);
    }
  }

  int joined(CodeOp op, int a, int b, std::size_t token) {
    const bool any_float = is_float(a) || is_float(b);
    const bool is_number = op == CodeOp::kTimes || op == CodeOp::kDivide || op == CodeOp::kPlus ||
                           op == CodeOp::kMinus || op == CodeOp::kMin || op == CodeOp::kMax;
    const bool wants_whole = op == CodeOp::kRest || op == CodeOp::kLeft || op == CodeOp::kRight ||
                             op == CodeOp::kBits || op == CodeOp::kOtherBits ||
                             op == CodeOp::kAnyBits;
    if (wants_whole && any_float) stop("it has bits or a rest of a float", token);
    if (op == CodeOp::kDivide && !any_float) op = CodeOp::kDivideWhole;
    return add({.op = op, .a = a, .b = b, .is_float = is_number && any_float});
  }

  int unary() {
    for (const auto& [text, op] : kUnaries) {
      if (peek() != text) continue;
      if (touches_next(at_) && peek(1) == text && op == CodeOp::kNegative) stop();
      const std::size_t operator_at = at_++;
      const int of = nested(&TreeReader::unary);
      if (op == CodeOp::kInverse && is_float(of))
        stop("it has bits or a rest of a float", operator_at);
      return add({.op = op, .a = of, .is_float = op == CodeOp::kNegative && is_float(of)});
    }
    if (peek() == "+" && !(touches_next(at_) && peek(1) == "+")) {
      ++at_;
      return nested(&TreeReader::unary);
    }
    return primary();
  }

  static const CodeOp* cast_to(std::string_view type) {
    const auto found = std::ranges::find(kCasts, type, &std::pair<std::string_view, CodeOp>::first);
    return found == std::end(kCasts) ? nullptr : &found->second;
  }
  int cast(CodeOp op, int of) { return add({.op = op, .a = of, .is_float = op == CodeOp::kFloat}); }

  int primary() {
    if (at_ == tokens_.size()) stop();
    if (peek() == "(") {
      if (const CodeOp* const to = cast_to(peek(1)); to != nullptr && peek(2) == ")") {
        at_ += 3;
        return cast(*to, nested(&TreeReader::unary));
      }
      ++at_;
      const int inner = nested(&TreeReader::choice);
      want(")");
      return inner;
    }
    const CodeToken token = tokens_[at_];
    if (token.is_number() || token.text.front() == '.') {
      const int node = number_of(token.text);
      ++at_;
      return node;
    }
    if (!token.is_name()) stop();
    ++at_;
    if (token.text == "static_cast") return static_cast_of();
    if (peek() == "(") return call(token.text);
    return name(token.text);
  }

  int static_cast_of() {
    want("<");
    const CodeOp* const to = cast_to(peek());
    if (to == nullptr) stop();
    ++at_;
    want(">");
    want("(");
    const int of = nested(&TreeReader::choice);
    want(")");
    return cast(*to, of);
  }

  int number_of(std::string_view text) {
    const char* const end = text.data() + text.size();
    std::int64_t whole = 0;
    const auto [rest, error] = std::from_chars(text.data(), end, whole);
    const bool octal = text.size() > 1 && text.front() == '0';
    if (error == std::errc() && rest == end && !octal && whole <= 2147483647)
      return number(static_cast<double>(whole));
    double value = 0;
    const auto [last, wrong] = std::from_chars(text.data(), end, value);
    const bool is_float = text.find_first_of(".eE") != text.npos &&
                          text.find_first_of("xX") == text.npos;
    const bool narrow = last + 1 == end && (*last == 'f' || *last == 'F');
    if (wrong != std::errc() || !(last == end || narrow) || !is_float) stop();
    return number(narrow ? static_cast<double>(static_cast<float>(value)) : value, true);
  }

  int name(std::string_view name) {
    const std::size_t its_token = at_ - 1;
    for (const auto& [text, op] : kPlaceNames) {
      if (name == text) return add({.op = op});
    }
    if (name == "s" && kind_ == CodeText::kScore)
      return add({.op = CodeOp::kScore, .is_float = true});
    if (name == "true" || name == "false") return number(name == "true");
    const auto found = std::ranges::find(arguments_, name, &CodeArgument::name);
    if (found == arguments_.end()) stop(fmt::format("it has \"{}\"", name), its_token);
    const auto index = static_cast<std::size_t>(found - arguments_.begin());
    const bool is_whole = found->type == CodeArgument::Type::kInt ||
                          found->type == CodeArgument::Type::kBool;
    if (!found->is_array)
      return add({.op = CodeOp::kArgument, .argument = index, .is_float = !is_whole});
    want("[");
    const int at = nested(&TreeReader::choice);
    want("]");
    return add({.op = CodeOp::kElement,
                .a = at,
                .argument = index,
                .type = found->type,
                .is_float = !is_whole});
  }

  int call(std::string_view name) {
    const std::size_t its_token = at_ - 1;
    want("(");
    std::vector<int> given = {nested(&TreeReader::choice)};
    while (skip(",")) given.push_back(nested(&TreeReader::choice));
    want(")");
    const auto is = [&](std::string_view of_double, std::size_t operands) {
      return given.size() == operands &&
             (name == of_double ||
              (name.ends_with('f') && name.substr(0, name.size() - 1) == of_double));
    };
    if (given.size() == 2 && (name == "min" || is("fmin", 2) || name == "max" || is("fmax", 2))) {
      const bool least = name == "min" || is("fmin", 2);
      const int node = joined(least ? CodeOp::kMin : CodeOp::kMax, given[0], given[1], its_token);
      nodes_.back().is_float |= name.front() == 'f';
      return node;
    }
    if (is("fma", 3))
      return as_float(joined(CodeOp::kPlus, joined(CodeOp::kTimes, given[0], given[1], its_token),
                             given[2], its_token));
    if (name == "abs" && given.size() == 1)
      return add({.op = CodeOp::kAbs, .a = given[0], .is_float = is_float(given[0])});
    if (is("fabs", 1)) return add({.op = CodeOp::kAbs, .a = given[0], .is_float = true});
    if (const CodeOp* const to = cast_to(name); to != nullptr && given.size() == 1)
      return cast(*to, given[0]);
    const LibraryFunction* const function = library_function(name);
    if (function == nullptr || given.size() != static_cast<std::size_t>(function->operands))
      stop(fmt::format("it calls {}", name), its_token);
    return add({.op = CodeOp::kCall,
                .a = given[0],
                .b = given.size() > 1 ? given[1] : -1,
                .function = function,
                .is_float = true});
  }
  int as_float(int node) {
    nodes_[static_cast<std::size_t>(node)].is_float = true;
    return node;
  }

  int nested(int (TreeReader::*part)()) {
    constexpr int kMostDepth = 64;
    if (depth_ == kMostDepth) stop("it is nested too deep", at_);
    ++depth_;
    const int node = (this->*part)();
    --depth_;
    return node;
  }

  const std::vector<CodeToken> tokens_;
  const std::size_t end_;  // of the text
  const CodeText kind_;
  const std::vector<CodeArgument>& arguments_;
  std::vector<CodeNode>& nodes_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

CodeTree code_tree(std::string_view text, CodeText kind,
                   const std::vector<CodeArgument>& arguments) {
  CodeTree tree;
  try {
    TreeReader(text, kind, arguments, tree.nodes).read();
  } catch (const UnknownCode& unknown) {
    tree.unknown = unknown.what;
    tree.unknown_at = unknown.at;
  }
  return tree;
}

}  // namespace attnforge
