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

/// The level of operators that bind more tightly than && and ||.
constexpr int kTermLevel = 2;

/// Reads a text by the precedences of C++. A term that it does not know, of those that && and ||
/// join at any depth of brackets, becomes a node without operands.
class TreeReader {
 public:
  TreeReader(std::string_view text, CodeText kind, const std::vector<CodeArgument>& arguments,
             CodeTree& tree)
      : tokens_(code_tokens(text)),
        end_(text.size()),
        kind_(kind),
        arguments_(arguments),
        tree_(tree),
        nodes_(tree.nodes),
        closes_(tokens_.size(), 0) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const char c = tokens_[i].text.front();
      if (c == '(' || c == '[' || c == '{') open.push_back(i);
      if ((c != ')' && c != ']' && c != '}') || open.empty()) continue;
      closes_[open.back()] = i;
      open.pop_back();
    }
  }

  void read() {
    try {
      choice();
      if (at_ < tokens_.size()) stop();
    } catch (const UnknownCode& unknown) {
      nodes_.clear();
      at_ = tokens_.size();
      opaque(unknown, 0);
    }
    if (!tree_.unknown.empty()) tree_.assigns = may_assign();
  }

 private:
  /// Remembers what a CPU cannot compute, if it is the first.
  void note(const UnknownCode& unknown) {
    if (!tree_.unknown.empty()) return;
    tree_.unknown = unknown.what;
    tree_.unknown_at = unknown.at;
  }
  int opaque(const UnknownCode& unknown, std::size_t first) {
    note(unknown);
    return add({.op = CodeOp::kOpaque}, first);
  }
  bool touch(std::size_t i, std::string_view first, std::string_view second) const {
    return touches_next(i) && tokens_[i].text == first && tokens_[i + 1].text == second;
  }

  bool may_assign() const {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const std::string_view text = tokens_[i].text;
      if (text == "and_eq" || text == "or_eq" || text == "xor_eq") return true;
      if (touch(i, "+", "+") || touch(i, "-", "-")) return true;
      if (touch(i, "<", "<") || touch(i, ">", ">")) {
        if (touch(i + 1, text, "=")) return true;
        ++i;
      } else if (touch(i, "=", "=") || touch(i, "!", "=") || touch(i, "<", "=") ||
                 touch(i, ">", "=")) {
        ++i;
      } else if (text == "=") {
        return true;
      }
    }
    return false;
  }

  /// Whether the token is what may follow a term.
  bool ends_term(std::size_t i) const {
    if (i == tokens_.size()) return true;
    const std::string_view text = tokens_[i].text;
    return text == ")" || text == "]" || text == "}" || text == "," || text == "?" ||
           (text == ":" && !touch(i, ":", ":")) || text == "and" || text == "or" ||
           touch(i, "&", "&") || touch(i, "|", "|");
  }

  int term() {
    const std::size_t first = at_, nodes = nodes_.size();
    const int depth = depth_;
    try {
      const int node = operation(kTermLevel);
      if (!ends_term(at_)) stop();
      return node;
    } catch (const UnknownCode& unknown) {
      nodes_.resize(nodes);
      depth_ = depth;
      for (at_ = first; !ends_term(at_); ++at_) {
        if (closes_[at_] != 0) at_ = closes_[at_];
        if (touch(at_, ":", ":")) ++at_;
      }
      return opaque(unknown, first);
    }
  }

  std::size_t place(std::size_t token) const {
    return token < tokens_.size() ? tokens_[token].at : end_;
  }
  /// The next token as what is not known.
  UnknownCode next_unknown() const {
    return {at_ < tokens_.size() ? fmt::format("it has \"{}\"", tokens_[at_].text)
                                 : std::string("it ends too early"),
            place(at_)};
  }
  [[noreturn]] void stop() const { throw next_unknown(); }
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

  /// A node of the tokens from `first` to the one before the next.
  int add(CodeNode node, std::size_t first) {
    node.begin = static_cast<std::uint32_t>(place(first));
    node.end = at_ > first ? static_cast<std::uint32_t>(tokens_[at_ - 1].end()) : node.begin;
    nodes_.push_back(node);
    return static_cast<int>(nodes_.size()) - 1;
  }
  bool is_float(int node) const { return tree_[node].is_float; }

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
    const std::size_t first = at_;
    const int condition = operation(0);
    if (!skip("?")) return condition;
    const int yes = nested(&TreeReader::choice);
    want(":");
    const int no = nested(&TreeReader::choice);
    return add({.op = CodeOp::kChoice,
                .a = condition,
                .b = yes,
                .c = no,
                .is_float = is_float(yes) || is_float(no)},
               first);
  }

  /// An expression of operators that bind as tightly as `least` or more.
  int operation(int least) {
    const std::size_t first = at_;
    int left = least < kTermLevel ? term() : unary();
    const Binary* found = nullptr;
    for (;;) {
      const std::size_t operator_at = at_, tokens = binary(found);
      if (tokens == 0 || found->level < least) return left;
      at_ += tokens;
      const int next = found->level + 1;
      const int right = next == kTermLevel ? term() : operation(next);
      left = joined(found->op, left, right, operator_at, first);
      nodes_.back().left_end = static_cast<std::uint32_t>(
          operator_at > first ? tokens_[operator_at - 1].end() : nodes_.back().begin);
      nodes_.back().middle = static_cast<std::uint32_t>(place(operator_at + tokens));
    }
  }

  int joined(CodeOp op, int a, int b, std::size_t token, std::size_t first) {
    const bool any_float = is_float(a) || is_float(b);
    const bool is_number = op == CodeOp::kTimes || op == CodeOp::kDivide || op == CodeOp::kPlus ||
                           op == CodeOp::kMinus || op == CodeOp::kMin || op == CodeOp::kMax;
    const bool wants_whole = op == CodeOp::kRest || op == CodeOp::kLeft || op == CodeOp::kRight ||
                             op == CodeOp::kBits || op == CodeOp::kOtherBits ||
                             op == CodeOp::kAnyBits;
    if (wants_whole && any_float) stop("it has bits or a rest of a float", token);
    if (op == CodeOp::kDivide && !any_float) op = CodeOp::kDivideWhole;
    return add({.op = op, .a = a, .b = b, .is_float = is_number && any_float}, first);
  }

  int unary() {
    for (const auto& [text, op] : kUnaries) {
      if (peek() != text) continue;
      if (touches_next(at_) && peek(1) == text && op == CodeOp::kNegative) stop();
      const std::size_t operator_at = at_++;
      const int of = nested(&TreeReader::unary);
      if (op == CodeOp::kInverse && is_float(of))
        stop("it has bits or a rest of a float", operator_at);
      return add({.op = op, .a = of, .is_float = op == CodeOp::kNegative && is_float(of)},
                 operator_at);
    }
    if (peek() == "+" && !(touches_next(at_) && peek(1) == "+")) {
      ++at_;
      return nested(&TreeReader::unary);
    }
    const std::size_t first = at_;
    if (peek() == "*" || peek() == "&") {
      note(next_unknown());
      ++at_;
      const int of = nested(&TreeReader::unary);
      return add({.op = CodeOp::kOpaque, .a = of}, first);
    }
    const bool is_lambda = peek() == "[";
    const int of = is_lambda ? -1 : primary();
    if (peek() != "[" && peek() != "(") return of;
    note(next_unknown());
    while (peek() == "[" || peek() == "(" || peek() == "{") {
      if (closes_[at_] == 0) stop();
      at_ = closes_[at_] + 1;
    }
    return add({.op = CodeOp::kOpaque, .a = of}, first);
  }

  static const CodeOp* cast_to(std::string_view type) {
    const auto found = std::ranges::find(kCasts, type, &std::pair<std::string_view, CodeOp>::first);
    return found == std::end(kCasts) ? nullptr : &found->second;
  }
  int cast(CodeOp op, int of, std::size_t first) {
    return add({.op = op, .a = of, .is_float = op == CodeOp::kFloat}, first);
  }

  int primary() {
    if (at_ == tokens_.size()) stop();
    const std::size_t first = at_;
    if (peek() == "(") {
      if (const CodeOp* const to = cast_to(peek(1)); to != nullptr && peek(2) == ")") {
        at_ += 3;
        const int of = nested(&TreeReader::unary);
        return cast(*to, of, first);
      }
      ++at_;
      const int inner = nested(&TreeReader::choice);
      want(")");
      return inner;
    }
    const CodeToken token = tokens_[at_];
    if (token.is_number() || token.text.front() == '.') {
      const CodeNode node = number_of(token.text);
      ++at_;
      return add(node, first);
    }
    if (!token.is_name()) stop();
    ++at_;
    if (token.text == "static_cast") return static_cast_of(first);
    if (peek() == "(") return call(token.text);
    return name(token.text);
  }

  int static_cast_of(std::size_t first) {
    want("<");
    const CodeOp* const to = cast_to(peek());
    if (to == nullptr) stop();
    ++at_;
    want(">");
    want("(");
    const int of = nested(&TreeReader::choice);
    want(")");
    return cast(*to, of, first);
  }

  CodeNode number_of(std::string_view text) {
    const char* const end = text.data() + text.size();
    std::int64_t whole = 0;
    const auto [rest, error] = std::from_chars(text.data(), end, whole);
    const bool octal = text.size() > 1 && text.front() == '0';
    if (error == std::errc() && rest == end && !octal && whole <= 2147483647)
      return {.number = static_cast<double>(whole)};
    double value = 0;
    const auto [last, wrong] = std::from_chars(text.data(), end, value);
    const bool is_float = text.find_first_of(".eE") != text.npos &&
                          text.find_first_of("xX") == text.npos;
    const bool narrow = last + 1 == end && (*last == 'f' || *last == 'F');
    if (wrong != std::errc() || !(last == end || narrow) || !is_float) stop();
    return {.number = narrow ? static_cast<double>(static_cast<float>(value)) : value,
            .is_float = true};
  }

  int name(std::string_view name) {
    const std::size_t its_token = at_ - 1;
    for (const auto& [text, op] : kPlaceNames) {
      if (name == text) return add({.op = op}, its_token);
    }
    if (name == "s" && kind_ == CodeText::kScore)
      return add({.op = CodeOp::kScore, .is_float = true}, its_token);
    if (name == "true" || name == "false")
      return add({.number = name == "true" ? 1.0 : 0.0}, its_token);
    const auto found = std::ranges::find(arguments_, name, &CodeArgument::name);
    if (found == arguments_.end()) {
      note({fmt::format("it has \"{}\"", name), place(its_token)});
      const int at = peek() == "[" ? element_at() : -1;
      return add({.op = CodeOp::kUnknown, .a = at}, its_token);
    }
    const auto index = static_cast<std::size_t>(found - arguments_.begin());
    const bool is_whole = found->type == CodeArgument::Type::kInt ||
                          found->type == CodeArgument::Type::kBool;
    if (!found->is_array)
      return add({.op = CodeOp::kArgument, .argument = index, .is_float = !is_whole}, its_token);
    if (peek() != "[") return opaque(next_unknown(), its_token);
    const int at = element_at();
    return add({.op = CodeOp::kElement,
                .a = at,
                .argument = index,
                .type = found->type,
                .is_float = !is_whole},
               its_token);
  }
  int element_at() {
    want("[");
    const int at = nested(&TreeReader::choice);
    want("]");
    return at;
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
      const int node = joined(least ? CodeOp::kMin : CodeOp::kMax, given[0], given[1], its_token,
                              its_token);
      nodes_.back().is_float |= name.front() == 'f';
      return node;
    }
    if (is("fma", 3)) {
      const int times = joined(CodeOp::kTimes, given[0], given[1], its_token, its_token);
      const int sum = joined(CodeOp::kPlus, times, given[2], its_token, its_token);
      nodes_.back().is_float = true;
      return sum;
    }
    if (name == "abs" && given.size() == 1)
      return add({.op = CodeOp::kAbs, .a = given[0], .is_float = is_float(given[0])}, its_token);
    if (is("fabs", 1)) return add({.op = CodeOp::kAbs, .a = given[0], .is_float = true}, its_token);
    if (const CodeOp* const to = cast_to(name); to != nullptr && given.size() == 1)
      return cast(*to, given[0], its_token);
    const LibraryFunction* const function = library_function(name);
    if (function == nullptr || given.size() != static_cast<std::size_t>(function->operands)) {
      note({fmt::format("it calls {}", name), place(its_token)});
      return add({.op = CodeOp::kUnknown, .a = given[0]}, its_token);
    }
    return add({.op = CodeOp::kCall,
                .a = given[0],
                .b = given.size() > 1 ? given[1] : -1,
                .function = function,
                .is_float = true},
               its_token);
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
  CodeTree& tree_;
  std::vector<CodeNode>& nodes_;
  std::vector<std::size_t> closes_;  // where a bracket that opens at a token closes; 0: nowhere
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

std::span<const CodeNode> CodeTree::under(int node) const {
  int first = node;
  while ((*this)[first].a >= 0) first = (*this)[first].a;
  return std::span(nodes).subspan(static_cast<std::size_t>(first),
                                  static_cast<std::size_t>(node - first) + 1);
}

CodeTree code_tree(std::string_view text, CodeText kind,
                   const std::vector<CodeArgument>& arguments) {
  CodeTree tree;
  TreeReader(text, kind, arguments, tree).read();
  return tree;
}

std::vector<int> terms_of(const CodeTree& tree, std::string_view text) {
  std::vector<int> terms, open = {static_cast<int>(tree.nodes.size()) - 1};
  while (!open.empty()) {
    const int at = open.back();
    open.pop_back();
    const CodeNode& node = tree[at];
    const std::string_view between = text.substr(node.left_end, node.middle - node.left_end);
    if (node.op == CodeOp::kAnd && between.find("&&") != between.npos)
      open.insert(open.end(), {node.b, node.a});
    else
      terms.push_back(at);
  }
  return terms;
}

}  // namespace attnforge
