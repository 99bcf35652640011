// user_code.cpp - checks of texts that are put into a kernel's source between brackets of ours, so
// that they must not be able to leave those.
#define XXH_INLINE_ALL
#include "generator/user_code/user_code.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include "attnforge/error.h"
#include "generator/problem/fields.h"
#include "generator/user_code/code_names.h"
#include "generator/user_code/code_tokens.h"

namespace attnforge {
namespace {

// ---- Expressions ----

/// Other spellings of brackets and of #.
constexpr std::string_view kDigraphs[] = {"<:", ":>", "<%", "%>", "%:"};

void check_bytes(std::string_view field, std::string_view text) {
  if (text.size() > kMostCodeBytes)
    reject_problem("{} has {} bytes; at most {} are allowed", field, text.size(), kMostCodeBytes);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c != '\n' && (c < ' ' || c > '~')) {
      reject_problem(
          "{} has the byte 0x{:02x} at {}; printable ASCII, blanks and ends of lines are allowed",
          field, static_cast<unsigned char>(c), line_and_column(text, i));
    }
  }
}

void check_brackets(std::string_view field, std::string_view text,
                    const std::vector<CodeToken>& tokens) {
  constexpr std::string_view kOpen = "([{", kClose = ")]}";
  std::vector<CodeToken> open;
  for (const CodeToken& token : tokens) {
    if (kOpen.find(token.text) != kOpen.npos) open.push_back(token);
    const std::size_t kind = kClose.find(token.text);
    if (kind == kClose.npos) continue;
    if (open.empty() || open.back().text.front() != kOpen[kind]) {
      reject_problem(
          "{} closes a bracket that is not open, '{}' at {}; every bracket is opened and closed in "
          "the text",
          field, token.text, line_and_column(text, token.at));
    }
    open.pop_back();
  }
  if (open.empty()) return;
  reject_problem("{} does not close the '{}' of {}; every bracket is opened and closed in the text",
                 field, open.back().text, line_and_column(text, open.back().at));
}

void check_expression(std::string_view field, std::string_view text) {
  if (text.empty()) return;
  check_bytes(field, text);
  const std::vector<CodeToken> tokens = code_tokens(text);
  if (tokens.empty()) reject_problem("{} holds blanks only; leave it out", field);
  for (const CodeToken& token : tokens) {
    const char c = token.text.front();
    if (c == '"' || c == '\'' || c == '\\' || c == '#' || c == '`' || c == '@' || c == '$') {
      reject_problem(
          "{} has a {} at {}; it is an expression over numbers, without literals of characters, "
          "directives and backslashes",
          field, c, line_and_column(text, token.at));
    }
    const std::string_view two = text.substr(token.at, 2);
    if (two == "//" || two == "/*") {
      reject_problem("{} has a comment at {}; leave it out", field,
                     line_and_column(text, token.at));
    }
    if (two == "??" || std::ranges::find(kDigraphs, two) != std::end(kDigraphs)) {
      reject_problem(
          "{} has \"{}\" at {}, which may mean another character; write blanks between the two, or "
          "the other character",
          field, two, line_and_column(text, token.at));
    }
    if (const std::string_view why = why_no_word(token.text); !why.empty()) {
      reject_problem("{} has the word {} at {}, which {}", field, token.text,
                     line_and_column(text, token.at), why);
    }
  }
  check_brackets(field, text, tokens);
}

// ---- Arguments ----

constexpr std::string_view kForm =
    "\"float* slope[num_heads_q], int window = 1024\": a type (float, int; of arrays also fp16, "
    "bf16, bool), a name, for an array how many elements it has, for a number what it is by "
    "default";

constexpr std::string_view kTypes[] = {"float", "int", "fp16", "bf16", "bool"};
constexpr int kTypeBytes[] = {4, 4, 2, 2, 1};

constexpr std::string_view kSizes[] = {"batch",     "num_heads_q", "num_heads_kv", "seqlen_q",
                                       "seqlen_kv", "head_dim",    "head_dim_v"};

/// Reads the list from its first token on.
class Arguments {
 public:
  explicit Arguments(std::string_view text) : text_(text), tokens_(code_tokens(text)) {}

  std::vector<CodeArgument> take() {
    std::vector<CodeArgument> list;
    if (tokens_.empty()) reject_problem("args holds blanks only; leave it out");
    for (;;) {
      list.push_back(one());
      if (list.size() > kMostCodeArguments) wrong("has more than {} arguments", kMostCodeArguments);
      const auto same = [&](const CodeArgument& other) { return other.name == list.back().name; };
      if (std::count_if(list.begin(), list.end(), same) > 1)
        wrong("has two arguments of the name {}", list.back().name);
      if (at_ == tokens_.size()) return list;
      if (!skip(",")) wrong("needs a comma between two arguments");
    }
  }

 private:
  template <class... Values>
  [[noreturn]] void wrong(fmt::format_string<Values...> format, Values&&... values) const {
    const std::size_t at = at_ < tokens_.size() ? tokens_[at_].at : text_.size();
    reject_problem("args {}, at {}; it is a list such as {}",
                   fmt::format(format, std::forward<Values>(values)...), line_and_column(text_, at),
                   kForm);
  }
  std::string_view peek() const { return at_ < tokens_.size() ? tokens_[at_].text : ""; }
  bool skip(std::string_view token) {
    if (peek() != token) return false;
    ++at_;
    return true;
  }

  CodeArgument one() {
    CodeArgument argument;
    argument.aligned = skip("aligned");
    skip("const");
    const auto type = std::ranges::find(kTypes, peek());
    if (type == std::end(kTypes)) wrong("has \"{}\" where a type is wanted", peek());
    argument.type = static_cast<CodeArgument::Type>(type - std::begin(kTypes));
    ++at_;
    skip("const");
    argument.is_array = skip("*");
    if (argument.is_array) {
      skip("const");
      skip("__restrict__");
    }
    if (argument.aligned && (!argument.is_array || argument.type == CodeArgument::Type::kInt ||
                             argument.type == CodeArgument::Type::kBool))
      wrong("has aligned before what is no array of float, fp16 or bf16");
    const std::string_view name = peek();
    if (name.empty() || !CodeToken{name}.is_name())
      wrong("has \"{}\" where a name is wanted", name);
    if (const std::string_view why = why_no_argument(name); !why.empty())
      wrong("calls an argument {}, which {}; choose another name", name, why);
    argument.name = name;
    ++at_;
    if (argument.is_array) {
      if (peek() == "[") extent(argument);
      if (peek() == "=") wrong("gives a default to an array");
      return argument;
    }
    if (argument.type != CodeArgument::Type::kFloat && argument.type != CodeArgument::Type::kInt)
      wrong("has a number {} of type {}: only arrays have that", name, *type);
    if (skip("=")) argument.value = number(argument.type);
    return argument;
  }

  void extent(CodeArgument& argument) {
    ++at_;
    const std::size_t begin = at_ < tokens_.size() ? tokens_[at_].at : text_.size();
    const std::size_t first = at_;
    bool wants_factor = true;
    for (; at_ < tokens_.size() && peek() != "]"; ++at_, wants_factor = !wants_factor) {
      const bool is_factor = tokens_[at_].is_name() || CodeToken{peek()}.is_number();
      if (is_factor != wants_factor) wrong("has sizes that are not a sum of products");
      if (is_factor) {
        if (!factor(peek(), Problem())) wrong("has the size \"{}\"", peek());
      } else if (peek() != "*" && peek() != "+" && peek() != "-") {
        wrong("has \"{}\" between sizes", peek());
      }
    }
    if (at_ == first || wants_factor || at_ == tokens_.size())
      wrong("has brackets without a sum of products of sizes, such as [num_heads_q * seqlen_kv]");
    argument.extent = text_.substr(begin, tokens_[at_].at - begin);
    ++at_;
  }

 public:
  /// A size by its name, or a whole number. nullopt: neither.
  static std::optional<double> factor(std::string_view token, const Problem& problem) {
    if (std::ranges::find(kSizes, token) != std::end(kSizes))
      return static_cast<double>(find_field(token)->value.get(problem));
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size()) return std::nullopt;
    return static_cast<double>(value);
  }

 private:
  double number(CodeArgument::Type type) {
    const bool negative = skip("-");
    std::string_view digits = peek();
    if (type == CodeArgument::Type::kFloat && digits.ends_with('f')) digits.remove_suffix(1);
    double value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool whole = type == CodeArgument::Type::kFloat ||
                       (value == std::floor(value) &&
                        value <= (negative ? 2147483648.0 : 2147483647.0));
    if (digits.empty() || error != std::errc() || end != digits.data() + digits.size() || !whole ||
        !(value <= std::numeric_limits<float>::max()))
      wrong("has the default \"{}\", which is not {}", peek(),
            type == CodeArgument::Type::kInt ? "a whole number of 32 bits" : "a number");
    ++at_;
    return negative ? -value : value;
  }

  const std::string_view text_;
  const std::vector<CodeToken> tokens_;
  std::size_t at_ = 0;
};

/// Throws unless the aligned array of `arguments`, if there is one, is read by rows of keys.
void check_aligned(const Problem& p, const std::vector<CodeArgument>& arguments) {
  if (std::ranges::count(arguments, true, &CodeArgument::aligned) > 1)
    reject_problem("args=\"{}\" has several aligned arrays; one is allowed", p.args);
  const std::size_t place = place_of_aligned(arguments);
  if (place == arguments.size()) return;
  const std::string& name = arguments[place].name;
  const std::vector<CodeToken> tokens = code_tokens(p.score);
  const auto found = std::ranges::find(tokens, name, &CodeToken::text);
  const auto close = [&] {  // of its index, which has no brackets of this kind inside
    auto end = found;
    while (end != tokens.end() && end->text != "]") ++end;
    return end;
  }();
  const auto sums_up = [](const CodeToken& token) {
    return (token.is_name() && token.text != "k" && token.text != "s") || token.is_number() ||
           std::string_view("()+-*").find(token.text) != std::string_view::npos;
  };
  const bool by_rows = close != tokens.end() && close - found > 4 && (found + 1)->text == "[" &&
                       (close - 2)->text == "+" && (close - 1)->text == "k" &&
                       std::all_of(found + 2, close - 2, sums_up);
  constexpr std::string_view kChoices[] = {"?", "&&", "||", "if", "for", "while", "switch"};
  const bool always = std::ranges::none_of(kChoices, [&](std::string_view choice) {
    return CodeToken{choice}.is_name() ? names(p.score, choice)
                                       : p.score.find(choice) != p.score.npos;
  });
  if (!by_rows || !always || std::ranges::count(tokens, name, &CodeToken::text) != 1 ||
      names(p.mask, name)) {
    reject_problem(
        "args has aligned before {0}, which is for an array that score alone reads, once and "
        "whatever the pair is (no ?, &&, || and statements), as {0}[... + k], where ... is made of "
        "numbers, names, + - * and brackets; it has not k and is a multiple of 16 bytes",
        name);
  }
}

/// Sums up the products of an extent, those with a minus `less` times.
std::int64_t sum_of_extent(const CodeArgument& argument, const Problem& p, double less) {
  constexpr double kMost = 281474976710656.0;  // far beyond any memory; its bytes fit in 64 bits
  double sum = 0, product = 1, factor = 1;
  for (const CodeToken& token : code_tokens(argument.extent)) {
    if (token.text == "+" || token.text == "-") {
      sum += factor * product;
      product = 1;
      factor = token.text == "+" ? 1 : -less;
    } else if (token.text != "*") {
      product *= Arguments::factor(token.text, p).value_or(0);
    }
  }
  return static_cast<std::int64_t>(std::clamp(sum + factor * product, 1.0, kMost));
}

/// Before the name of an array whose gradient is written whole.
constexpr std::string_view kWholeWord = "whole";

bool is_whole(const std::vector<CodeToken>& list) {
  return list.size() == 2 && list[0].text == kWholeWord && list[1].is_name();
}

/// The names of a list with commas between them.
std::vector<std::string_view> names_of_list(std::string_view list) {
  constexpr std::string_view kNameList = "it is a list of names such as \"slope, table\"";
  check_bytes("dargs", list);
  std::vector<std::string_view> found;
  bool wants_name = true;
  std::vector<CodeToken> tokens = code_tokens(list);
  if (is_whole(tokens)) tokens.erase(tokens.begin());
  for (const CodeToken& token : tokens) {
    if (wants_name != token.is_name() || (!wants_name && token.text != ","))
      reject_problem("dargs has \"{}\" at {}; {}", token.text, line_and_column(list, token.at),
                     kNameList);
    if (wants_name) found.push_back(token.text);
    wants_name = !wants_name;
  }
  if (wants_name) reject_problem("dargs ends where a name is wanted; {}", kNameList);
  return found;
}

/// Whether a gradient is wanted of the aligned array alone, and an element of it is read for one
/// pair, as far as names tell.
bool reads_once(const Problem& p, const std::vector<CodeArgument>& arguments,
                const std::vector<std::string_view>& wanted) {
  const std::size_t place = place_of_aligned(arguments);
  if (place == arguments.size() || wanted.size() != 1 || wanted[0] != arguments[place].name)
    return false;
  const std::string_view score = p.score;
  const std::size_t begin = score.find('[', score.find(wanted[0])), end = score.find(']', begin);
  if (begin == score.npos || end == score.npos) return false;
  const std::string_view index = score.substr(begin, end - begin);
  return names(index, "q") && (p.batch == 1 || names(index, "batch")) &&
         (p.num_heads_q == 1 || names(index, "head"));
}

/// Throws unless each array of problem.dargs can have a gradient.
void check_dargs(const Problem& p) {
  const std::vector<CodeArgument> arguments = code_arguments(p.args);
  const std::vector<std::string_view> wanted = names_of_list(p.dargs);
  for (const std::string_view name : wanted) {
    const auto found = std::ranges::find(arguments, name, &CodeArgument::name);
    if (found == arguments.end())
      reject_problem("dargs names {}, which is not in args=\"{}\"", name, p.args);
    using Type = CodeArgument::Type;
    if (!found->is_array || found->type == Type::kInt || found->type == Type::kBool) {
      reject_problem(
          "dargs names {}, {} of type {}; arrays of float, fp16 and bf16 have a gradient", name,
          found->is_array ? "an array" : "a number", to_string(found->type));
    }
    if (!names(p.score, name)) {
      reject_problem(
          "dargs names {}, which score does not read; an array that mask alone reads has no "
          "gradient: leave it out",
          name);
    }
    if (std::ranges::count(wanted, name) > 1) reject_problem("dargs names {} more than once", name);
  }
  if (arguments.size() + wanted.size() > kMostCodeArguments) {
    reject_problem("args and dargs have {} names together; at most {} are allowed",
                   arguments.size() + wanted.size(), kMostCodeArguments);
  }
  if (writes_dargs(p) && (!reads_once(p, arguments, wanted) || !adds_rows_alone(p) ||
                          p.lengths != Lengths::kFixed || has_block_mask(p))) {
    reject_problem(
        "dargs=\"{}\" is for an aligned array that is added to the score, whose index names q, and "
        "batch and head where there are several, and not for lengths=, blocks= and softcap=: leave "
        "out the word whole",
        p.dargs);
  }
  if (p.deterministic && !reads_once(p, arguments, wanted)) {
    reject_problem(
        "dargs does not go with deterministic, but of an aligned array whose index names q, and "
        "batch and head where there are several: whatever else reads an element adds to its "
        "gradient in any order; leave out one of them");
  }
}

}  // namespace

std::string_view to_string(CodeArgument::Type type) { return kTypes[static_cast<int>(type)]; }
int size_bytes(CodeArgument::Type type) { return kTypeBytes[static_cast<int>(type)]; }

std::vector<CodeArgument> code_arguments(std::string_view args) {
  if (args.empty()) return {};
  check_bytes("args", args);
  return Arguments(args).take();
}

std::int64_t array_elements(const CodeArgument& argument, const Problem& p) {
  constexpr double kUsual = 1 << 26;
  if (!argument.extent.empty()) return sum_of_extent(argument, p, 1);
  const Tokens tokens = total_tokens(p);
  const double all = 2.0 * static_cast<double>(p.num_heads_q) *
                     (static_cast<double>(tokens.q) + static_cast<double>(tokens.kv));
  return static_cast<std::int64_t>(std::clamp(all, 1024.0, kUsual));
}

std::int64_t most_elements(const CodeArgument& argument, const Problem& p) {
  return argument.extent.empty() ? array_elements(argument, p) : sum_of_extent(argument, p, 0);
}

void check_code(const Problem& p) {
  check_expression("score", p.score);
  check_expression("mask", p.mask);
  if (!p.dargs.empty()) check_dargs(p);
  if (p.args.empty()) return;
  if (!has_code(p))
    reject_problem("args belong to a score or a mask, and there is neither; leave them out");
  check_aligned(p, code_arguments(p.args));
}

std::size_t place_of_aligned(const std::vector<CodeArgument>& arguments) {
  const auto found = std::ranges::find(arguments, true, &CodeArgument::aligned);
  return static_cast<std::size_t>(found - arguments.begin());
}

bool writes_dargs(const Problem& p) { return is_whole(code_tokens(p.dargs)); }

std::vector<std::size_t> places_of_dargs(const Problem& p) {
  if (p.dargs.empty()) return {};
  const std::vector<CodeArgument> arguments = code_arguments(p.args);
  std::vector<std::size_t> places;
  for (const std::string_view name : names_of_list(p.dargs)) {
    const auto found = std::ranges::find(arguments, name, &CodeArgument::name);
    ATTNFORGE_ASSERT(found != arguments.end(), "validate() lets no other name through");
    places.push_back(static_cast<std::size_t>(found - arguments.begin()));
  }
  return places;
}

std::size_t code_words_of_run(const Problem& p) {
  return code_arguments(p.args).size() + places_of_dargs(p).size();
}

std::string code_suffix(const Problem& p) {
  if (!has_code(p)) return "";
  std::string all = p.args;
  if (!p.dargs.empty()) all.append(1, '\0').append(p.dargs);
  for (const std::string* text : {&p.score, &p.mask}) {
    all.push_back('\0');  // so that texts cannot run together
    all += *text;
  }
  return fmt::format("_{:08x}", XXH3_64bits(all.data(), all.size()) & 0xffffffff);
}

bool names(std::string_view text, std::string_view name) {
  if (text.find(name) == text.npos) return false;
  return std::ranges::any_of(code_tokens(text),
                             [&](const CodeToken& token) { return token.text == name; });
}

bool mask_depends_on(const Problem& problem, std::string_view name) {
  return names(problem.mask, name);
}

}  // namespace attnforge
