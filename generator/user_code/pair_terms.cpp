#include "generator/user_code/pair_terms.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "generator/user_code/code_terms.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

using Relation = PairTerm::Relation;

bool has_name(Code tokens, std::string_view name) {
  return std::ranges::any_of(tokens, [&](const CodeToken& token) { return token.text == name; });
}

/// The part of the text that the tokens stand for.
std::string text_of(std::string_view whole, Code tokens) {
  if (tokens.empty()) return "";
  std::string text(whole.substr(tokens.front().at, tokens.back().end() - tokens.front().at));
  std::ranges::replace(text, '\n', ' ');
  return text;
}

/// Whether nothing in a term but comparisons decides what is evaluated, and it has no functions of
/// its own.
bool is_plain(Code term) {
  for (const char* token : {"?", "|", "&", "^", "{", "}", "and", "or", "xor", "not", "bitand",
                            "bitor", "not_eq", "sizeof"}) {
    if (has_name(term, token)) return false;
  }
  return true;
}

/// Whether arrays are read at indexes alone that no other term can have been meant to bound.
bool reads_plainly(Code term, const std::vector<CodeArgument>& arguments) {
  constexpr std::string_view kInIndexes[] = {"batch",     "head", "q", "k", "seqlen_q",
                                             "seqlen_kv", "+",    "*", "(", ")"};
  int depth = 0;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const std::string_view text = term[i].text;
    if (names_array(arguments, text) && (i + 1 == term.size() || term[i + 1].text != "["))
      return false;
    if (text == "]") --depth;
    if (depth > 0 && std::ranges::find(kInIndexes, text) == std::end(kInIndexes)) return false;
    if (text == "[") ++depth;
  }
  return true;
}

struct Compared {
  Code left, right;
  Relation relation;
};

/// The only comparison outside of brackets; nothing where there are others, or shifts.
std::optional<Compared> comparison_of(Code term) {
  constexpr std::pair<std::string_view, Relation> kOfTwo[] = {{"=", Relation::kEqual},
                                                              {"!", Relation::kUnequal},
                                                              {"<", Relation::kAtMost},
                                                              {">", Relation::kAtLeast}};
  std::optional<Compared> found;
  int depth = 0;
  for (std::size_t i = 0; i < term.size(); ++i) {
    const std::string_view text = term[i].text;
    if (text == "(" || text == "[") ++depth;
    if (text == ")" || text == "]") --depth;
    if (depth != 0) continue;
    if (touch(term, i, "<", "<") || touch(term, i, ">", ">") || touch(term, i, "-", ">"))
      return std::nullopt;
    std::size_t size = 0;
    Relation relation{};
    for (const auto& [first, of_two] : kOfTwo) {
      if (!touch(term, i, first, "=")) continue;
      size = 2;
      relation = of_two;
    }
    if (size == 0 && (text == "<" || text == ">")) {
      size = 1;
      relation = text == "<" ? Relation::kBelow : Relation::kAbove;
    }
    if (size == 0) continue;
    if (found) return std::nullopt;
    found = {term.first(i), term.subspan(i + size), relation};
    i += size - 1;
  }
  if (found && (found->left.empty() || found->right.empty())) return std::nullopt;
  return found;
}

Relation mirrored(Relation relation) {
  switch (relation) {
    case Relation::kBelow:
      return Relation::kAbove;
    case Relation::kAtMost:
      return Relation::kAtLeast;
    case Relation::kAbove:
      return Relation::kBelow;
    case Relation::kAtLeast:
      return Relation::kAtMost;
    default:
      return relation;
  }
}

std::optional<PairTerm> read_term(std::string_view text, Code term) {
  if (term.empty() || !is_plain(term)) return std::nullopt;
  if (const std::optional<Compared> compared = comparison_of(term)) {
    const auto& [left, right, relation] = *compared;
    if (!has_name(left, "k") && !has_name(right, "q"))
      return PairTerm{text_of(text, left), relation, text_of(text, right)};
    if (!has_name(left, "q") && !has_name(right, "k"))
      return PairTerm{text_of(text, right), mirrored(relation), text_of(text, left)};
  }
  const std::string truth = "bool(" + text_of(text, term) + ")";
  if (!has_name(term, "k")) return PairTerm{truth, Relation::kEqual, "true"};
  if (!has_name(term, "q")) return PairTerm{"true", Relation::kEqual, truth};
  return std::nullopt;
}

}  // namespace

PairTerms pair_terms(const Problem& problem) {
  const std::string text = mask_code(problem);
  const std::vector<CodeToken> tokens = code_tokens(text);
  if (tokens.empty()) return {};
  if (may_assign(tokens)) return {.terms = {}, .all = false};
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  PairTerms found;
  bool is_first = true;
  for (const Code term : terms_of(tokens)) {
    if (term.size() == 1 && term.front().text == "1") continue;  // a window was here
    std::optional<PairTerm> read;
    const bool reads = std::ranges::any_of(
        term, [&](const CodeToken& token) { return names_array(arguments, token.text); });
    if (!reads || (is_first && reads_plainly(term, arguments))) read = read_term(text, term);
    is_first = false;
    if (read)
      found.terms.push_back(*std::move(read));
    else
      found.all = false;
  }
  return found;
}

bool holds_labels(const Problem& problem, std::string_view array) {
  const auto count = [&](const std::string& text) {
    return std::ranges::count(code_tokens(text), array, &CodeToken::text);
  };
  std::ptrdiff_t compared = 0;
  for (const PairTerm& term : pair_terms(problem).terms) {
    // A bracket before it may be that of another array's index; arithmetic would need its values.
    const auto is_alone = [&](const std::string& side) {
      return code_tokens(side).front().text == array && side.ends_with("]") && count(side) == 1;
    };
    if (term.relation == Relation::kEqual && is_alone(term.of_query) && is_alone(term.of_key))
      compared += 2;
    else if (term.relation == Relation::kEqual)
      compared += is_alone(term.of_query) || is_alone(term.of_key);
  }
  return compared > 0 && compared == count(problem.mask) + count(problem.score);
}

}  // namespace attnforge
