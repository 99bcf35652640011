#include "generator/user_code/mask_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "generator/user_code/code_tokens.h"

namespace attnforge {

/// Reads a text by the precedences of C++; throws Unknown at what it does not know.
class MaskRuleReader {
 public:
  struct Unknown {
    std::string what;
  };

  MaskRuleReader(std::string_view text, const Problem& problem, MaskRule& rule)
      : tokens_(code_tokens(text)),
        problem_(problem),
        arguments_(code_arguments(problem.args)),
        rule_(rule) {}

  int read() {
    const int root = choice();
    if (at_ < tokens_.size()) stop();
    return root;
  }

 private:
  using Op = MaskRule::Op;
  using Node = MaskRule::Node;

  struct Binary {
    std::string_view text;
    int level;  // a higher one binds more tightly
    Op op;
  };
  static constexpr int kLevels = 10;
  // Longer ones before those that they begin with.
  static constexpr Binary kBinaries[] = {
      {"||", 0, Op::kOr},      {"or", 0, Op::kOr},      {"&&", 1, Op::kAnd},
      {"and", 1, Op::kAnd},    {"<<", 7, Op::kLeft},    {">>", 7, Op::kRight},
      {"==", 5, Op::kEqual},   {"!=", 5, Op::kUnequal}, {"<=", 6, Op::kAtMost},
      {">=", 6, Op::kAtLeast}, {"|", 2, Op::kAnyBits},  {"^", 3, Op::kOtherBits},
      {"&", 4, Op::kBits},     {"<", 6, Op::kBelow},    {">", 6, Op::kAbove},
      {"+", 8, Op::kPlus},     {"-", 8, Op::kMinus},    {"*", 9, Op::kTimes},
      {"/", 9, Op::kDivide},   {"%", 9, Op::kRest}};

  [[noreturn]] void stop() const {
    throw Unknown{at_ < tokens_.size() ? fmt::format("it has \"{}\"", tokens_[at_].text)
                                       : std::string("it ends too early")};
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

  int add(Node node) {
    rule_.nodes_.push_back(node);
    return static_cast<int>(rule_.nodes_.size()) - 1;
  }
  bool is_float(int node) const { return rule_.nodes_[static_cast<std::size_t>(node)].is_float; }
  int number(double value, bool is_float = false) {
    return add({.op = Op::kNumber, .number = value, .is_float = is_float});
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
    const int yes = nested(&MaskRuleReader::choice);
    want(":");
    const int no = nested(&MaskRuleReader::choice);
    return add({.op = Op::kChoice,
                .a = condition,
                .b = yes,
                .c = no,
                .is_float = is_float(yes) || is_float(no)});
  }

  int operation(int level) {
    if (level == kLevels) return unary();
    int left = operation(level + 1);
    const Binary* found = nullptr;
    for (;;) {
      const std::size_t tokens = binary(found);
      if (tokens == 0 || found->level != level) return left;
      at_ += tokens;
      left = joined(found->op, left, operation(level + 1));
    }
  }

  int joined(Op op, int a, int b) {
    const bool any_float = is_float(a) || is_float(b);
    const bool is_number = op == Op::kTimes || op == Op::kDivide || op == Op::kPlus ||
                           op == Op::kMinus || op == Op::kMin || op == Op::kMax;
    const bool wants_whole = op == Op::kRest || op == Op::kLeft || op == Op::kRight ||
                             op == Op::kBits || op == Op::kOtherBits || op == Op::kAnyBits;
    if (wants_whole && any_float) throw Unknown{"it has bits or a rest of a float"};
    if (op == Op::kDivide && !any_float) op = Op::kDivideWhole;
    return add({.op = op, .a = a, .b = b, .is_float = is_number && any_float});
  }

  int unary() {
    for (const auto& [text, op] :
         {std::pair("-", Op::kNegative), {"!", Op::kNot}, {"not", Op::kNot}, {"~", Op::kInverse}}) {
      if (peek() != text) continue;
      if (touches_next(at_) && peek(1) == text && op == Op::kNegative) stop();
      ++at_;
      const int of = nested(&MaskRuleReader::unary);
      if (op == Op::kInverse && is_float(of)) throw Unknown{"it has bits or a rest of a float"};
      return add({.op = op, .a = of, .is_float = op == Op::kNegative && is_float(of)});
    }
    if (peek() == "+" && !(touches_next(at_) && peek(1) == "+")) {
      ++at_;
      return nested(&MaskRuleReader::unary);
    }
    return primary();
  }

  int primary() {
    if (at_ == tokens_.size()) stop();
    if (skip("(")) {
      const int inner = nested(&MaskRuleReader::choice);
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
    if (peek() == "(") return call(token.text);
    return name(token.text);
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
    const bool all = last == end || (last + 1 == end && (*last == 'f' || *last == 'F'));
    if (wrong != std::errc() || !all || !is_float) stop_at(text);
    return number(value, true);
  }

  int name(std::string_view name) {
    for (const auto& [text, op] :
         {std::pair("batch", Op::kBatch), {"head", Op::kHead}, {"q", Op::kQ}, {"k", Op::kK}}) {
      if (name == text) return add({.op = op});
    }
    if (name == "seqlen_q") return number(static_cast<double>(problem_.seqlen_q));
    if (name == "seqlen_kv") return number(static_cast<double>(problem_.seqlen_kv));
    if (name == "true" || name == "false") return number(name == "true");
    const auto found = std::ranges::find(arguments_, name, &CodeArgument::name);
    if (found == arguments_.end()) stop_at(name);
    if (!found->is_array) return number(found->value, found->type == CodeArgument::Type::kFloat);
    const auto index = static_cast<std::size_t>(found - arguments_.begin());
    const bool has_numbers = found->type == CodeArgument::Type::kFloat ||
                             found->type == CodeArgument::Type::kInt ||
                             found->type == CodeArgument::Type::kBool;
    if (!has_numbers)
      throw Unknown{fmt::format("it reads {}, of {}", name, to_string(found->type))};
    if (rule_.arrays_[index].bytes.empty())
      throw Unknown{fmt::format("it reads {}, whose elements are not given", name)};
    want("[");
    const int at = nested(&MaskRuleReader::choice);
    want("]");
    return add({.op = Op::kElement,
                .a = at,
                .array = index,
                .is_float = found->type == CodeArgument::Type::kFloat});
  }

  int call(std::string_view name) {
    want("(");
    std::vector<int> given = {nested(&MaskRuleReader::choice)};
    while (skip(",")) given.push_back(nested(&MaskRuleReader::choice));
    want(")");
    if (given.size() == 2 && (name == "min" || name == "max"))
      return joined(name == "min" ? Op::kMin : Op::kMax, given[0], given[1]);
    if (given.size() == 1) {
      const int of = given[0];
      if (name == "abs") return add({.op = Op::kAbs, .a = of, .is_float = is_float(of)});
      if (name == "int") return add({.op = Op::kWhole, .a = of});
      if (name == "bool") return add({.op = Op::kBool, .a = of});
      if (name == "float") return joined(Op::kTimes, of, number(1, true));
    }
    throw Unknown{fmt::format("it calls {}", name)};
  }

  [[noreturn]] static void stop_at(std::string_view text) {
    throw Unknown{fmt::format("it has \"{}\"", text)};
  }
  int nested(int (MaskRuleReader::*part)()) {
    constexpr int kMostDepth = 64;
    if (depth_ == kMostDepth) throw Unknown{"its brackets are too deep"};
    ++depth_;
    const int node = (this->*part)();
    --depth_;
    return node;
  }

  const std::vector<CodeToken> tokens_;
  const Problem& problem_;
  const std::vector<CodeArgument> arguments_;
  MaskRule& rule_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

MaskRule::MaskRule(std::string_view text, const Problem& problem,
                   std::span<const std::span<const std::byte>> arrays) {
  for (const CodeArgument& argument : code_arguments(problem.args)) {
    const std::size_t index = arrays_.size();
    arrays_.push_back(
        {argument.type, index < arrays.size() ? arrays[index] : std::span<const std::byte>()});
  }
  try {
    root_ = MaskRuleReader(text, problem, *this).read();
  } catch (const MaskRuleReader::Unknown& unknown) {
    unknown_ = unknown.what;
  }
}

double MaskRule::element(const Array& array, double index) const {
  const auto size = static_cast<std::size_t>(size_bytes(array.type));
  if (!(index >= 0) || index >= static_cast<double>(array.bytes.size() / size)) return 0;
  const std::byte* const from = array.bytes.data() + static_cast<std::size_t>(index) * size;
  if (array.type == CodeArgument::Type::kBool) return *from != std::byte{0} ? 1 : 0;
  if (array.type == CodeArgument::Type::kInt) {
    std::int32_t whole = 0;
    std::memcpy(&whole, from, sizeof(whole));
    return whole;
  }
  float number = 0;
  std::memcpy(&number, from, sizeof(number));
  return number;
}

double MaskRule::value(int at, const Pair& pair) const {
  const Node& node = nodes_[static_cast<std::size_t>(at)];
  const auto a = [&] { return value(node.a, pair); };
  const auto b = [&] { return value(node.b, pair); };
  // What a program could not compute is 0 here.
  const auto whole = [](double x) {
    constexpr double kMost = 4294967296.0;
    return std::abs(x) <= kMost ? static_cast<std::int64_t>(x) : std::int64_t{0};
  };
  const auto of_wholes = [&](const auto& join) {
    const std::int64_t left = whole(a()), right = whole(b());
    return static_cast<double>(join(left, right));
  };
  switch (node.op) {
    case Op::kNumber:
      return node.number;
    case Op::kBatch:
      return static_cast<double>(pair.batch);
    case Op::kHead:
      return static_cast<double>(pair.head);
    case Op::kQ:
      return static_cast<double>(pair.q);
    case Op::kK:
      return static_cast<double>(pair.k);
    case Op::kElement:
      return element(arrays_[node.array], a());
    case Op::kNegative:
      return -a();
    case Op::kNot:
      return a() == 0 ? 1 : 0;
    case Op::kInverse:
      return static_cast<double>(~whole(a()));
    case Op::kWhole:
      return static_cast<double>(whole(a()));
    case Op::kBool:
      return a() != 0 ? 1 : 0;
    case Op::kAbs:
      return std::abs(a());
    case Op::kTimes:
      return a() * b();
    case Op::kDivide:
      return a() / b();
    case Op::kDivideWhole:
      return of_wholes([](auto x, auto y) { return y == 0 ? 0 : x / y; });
    case Op::kRest:
      return of_wholes([](auto x, auto y) { return y == 0 ? 0 : x % y; });
    case Op::kPlus:
      return a() + b();
    case Op::kMinus:
      return a() - b();
    case Op::kLeft:
      return of_wholes(
          [](auto x, auto y) { return y < 0 || y > 31 ? 0 : x * (std::int64_t{1} << y); });
    case Op::kRight:
      return of_wholes([](auto x, auto y) { return y < 0 || y > 31 ? 0 : x >> y; });
    case Op::kBelow:
      return a() < b() ? 1 : 0;
    case Op::kAtMost:
      return a() <= b() ? 1 : 0;
    case Op::kAbove:
      return a() > b() ? 1 : 0;
    case Op::kAtLeast:
      return a() >= b() ? 1 : 0;
    case Op::kEqual:
      return a() == b() ? 1 : 0;
    case Op::kUnequal:
      return a() != b() ? 1 : 0;
    case Op::kBits:
      return of_wholes([](auto x, auto y) { return x & y; });
    case Op::kOtherBits:
      return of_wholes([](auto x, auto y) { return x ^ y; });
    case Op::kAnyBits:
      return of_wholes([](auto x, auto y) { return x | y; });
    case Op::kAnd:
      return a() != 0 && b() != 0 ? 1 : 0;
    case Op::kOr:
      return a() != 0 || b() != 0 ? 1 : 0;
    case Op::kMin:
      return std::min(a(), b());
    case Op::kMax:
      return std::max(a(), b());
    case Op::kChoice:
      return a() != 0 ? b() : value(node.c, pair);
  }
  return 0;
}

}  // namespace attnforge
