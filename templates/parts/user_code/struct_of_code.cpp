// struct_of_code.cpp - the user's texts as functions of the entry's struct UserCode.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/user_code/code_tree.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/user_code.h"
#include "generator/user_code/wide_indexes.h"
#include "templates/parts/user_code/host.h"

namespace attnforge {
namespace {

std::string word(std::size_t index) { return fmt::format("attnforge_code.words[{}]", index); }

const char* element_of(const CodeArgument& argument) {
  constexpr const char* kElements[] = {"float", "int", "Fp16", "Bf16", "bool"};
  return kElements[static_cast<int>(argument.type)];
}
/// "UserArray<float>"
std::string type_of_array(const CodeArgument& argument, bool wide) {
  if (wide && argument.type == CodeArgument::Type::kInt) return "WideArray";
  return fmt::format("UserArray<{}>", element_of(argument));
}

/// "    [[maybe_unused]] const UserArray<float> slope(code.words[0]);\n"
std::string local(const CodeArgument& argument, std::size_t index, bool wide,
                  bool by_rows = false) {
  if (argument.aligned && by_rows) {
    return fmt::format(
        "    [[maybe_unused]] const AlignedArray<{}, Reads> {}({}, attnforge_reads);\n",
        element_of(argument), argument.name, word(index));
  }
  if (argument.is_array) {
    return fmt::format("    [[maybe_unused]] const {} {}({});\n", type_of_array(argument, wide),
                       argument.name, word(index));
  }
  const bool is_float = argument.type == CodeArgument::Type::kFloat;
  return fmt::format("    [[maybe_unused]] const {} {} = {}(u32({}));\n",
                     is_float ? "float"
                     : wide   ? "i64"
                              : "int",
                     argument.name, is_float ? "__uint_as_float" : "int", word(index));
}

/// The parameters of a function of a text, and a line at its beginning. `wide`:
/// generator/user_code/wide_indexes.
struct Places {
  const char *taken, *first_line;
};
Places places_of(bool wide) {
  if (!wide) return {"int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv", ""};
  return {"i64 batch, i64 head, i64 q, KeyPosition attnforge_k, i64 seqlen_q, i64 seqlen_kv",
          "    [[maybe_unused]] const i64 k = u32(int(attnforge_k));\n"};
}

/// Arguments in the function that follows reads: an array whose gradient is wanted has a second
/// word, the gradient's address.
std::string locals_of_reads(const Problem& problem, const std::vector<CodeArgument>& arguments,
                            bool wide) {
  const std::vector<std::size_t> wanted = places_of_dargs(problem);
  std::string lines;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto found = std::ranges::find(wanted, i);
    if (found == wanted.end()) {
      lines += local(arguments[i], i, wide);
      continue;
    }
    const std::size_t gradient = arguments.size() +
                                 static_cast<std::size_t>(found - wanted.begin());
    lines += fmt::format("    [[maybe_unused]] const ReadArray<{}> {}({}, {}, attnforge_reads);\n",
                         type_of_array(arguments[i], wide), arguments[i].name, word(i),
                         word(gradient));
  }
  return lines;
}

std::string locals(const std::vector<CodeArgument>& arguments, bool wide, bool by_rows = false) {
  std::string lines;
  for (std::size_t i = 0; i < arguments.size(); ++i) lines += local(arguments[i], i, wide, by_rows);
  return lines;
}

/// In a score these stand for what the piece takes for them (parts/user_code/code.cuh). Where
/// slopes are needed its argument may carry a derivative.
constexpr const char* kTanhNames =
    "    [[maybe_unused]] const auto tanhf = [&](float x) { return attnforge_tanh(x); };\n"
    "    [[maybe_unused]] const auto& tanh = tanhf;\n";
constexpr const char*
    kSlopeTanhNames = "    [[maybe_unused]] const auto &tanhf = attnforge_tanh, &tanh = tanhf;\n";

/// The text between `open` and `close`, on lines that messages number from 1 in a file named
/// `name`; what is wrong with its value, or missing at its end, is said there too. It has no
/// quotes, comments, directives or backslashes, and closes what it opens
/// (generator/user_code/user_code), so it cannot leave them.
std::string lines_of(std::string_view name, std::string_view open, std::string_view text,
                     std::string_view close) {
  return fmt::format("#line 1 \"{0}\"\n{1}\n#line 1 \"{0}\"\n{2} {3}\n#line 1 \"entry\"\n", name,
                     open, text, close);
}

/// What PairTerms::value says of verdicts t[i] of the terms.
std::string value_of_terms(const PairTerms& found) {
  std::vector<std::string> operands;
  for (const int item : found.value) {
    if (item >= 0 || item == PairTerms::kUnknown) {
      operands.push_back(item >= 0 ? fmt::format("t[{}]", item) : "V::unknown()");
      continue;
    }
    std::string last = std::move(operands.back());
    if (item == PairTerms::kOpposite) {
      operands.back() = fmt::format("opposite({})", last);
      continue;
    }
    operands.pop_back();
    operands.back() = fmt::format("{}({}, {})", item == PairTerms::kBoth ? "both" : "either",
                                  operands.back(), last);
  }
  return operands.back();
}

/// The function place_of_mask of a text that is one element of an array of booleans, at "... + k"
/// of which the rest does not name k; "" of other texts.
std::string lines_of_place(std::string_view mask, const std::vector<CodeArgument>& arguments,
                           bool wide) {
  const CodeTree tree = code_tree(mask, CodeText::kMask, arguments);
  if (tree.assigns || !tree.unknown.empty()) return "";
  int at = static_cast<int>(tree.nodes.size()) - 1;
  while (tree[at].op == CodeOp::kAnd && tree[tree[at].a].op == CodeOp::kNumber &&
         tree[tree[at].a].number != 0)
    at = tree[at].b;  // what windows leave of a text
  const CodeNode& element = tree[at];
  if (element.op != CodeOp::kElement || element.type != CodeArgument::Type::kBool) return "";
  const CodeNode& index = tree[element.a];
  const auto names_k = [](const CodeNode& node) { return node.op == CodeOp::kK; };
  if (index.op != CodeOp::kPlus || !names_k(tree[index.b]) ||
      std::ranges::any_of(tree.under(index.a), names_k))
    return "";
  const Places places = places_of(wide);
  return fmt::format(
      "  ATTNFORGE_DEVICE static const bool* place_of_mask([[maybe_unused]] const Words& "
      "attnforge_code, {}) {{\n"
      "{}"
      "{}"
      "    return {}.data + i64({});\n"
      "  }}\n",
      places.taken, places.first_line, locals(arguments, wide), arguments[element.argument].name,
      mask.substr(index.begin, index.end - index.begin));
}

/// Functions term_of_query<i> and term_of_key<i> of the terms that decide many pairs at once.
std::string lines_of_terms(const PairTerms& found, const std::vector<CodeArgument>& arguments,
                           bool wide) {
  std::string relations, of_query, of_key;
  for (std::size_t i = 0; i < found.terms.size(); ++i) {
    constexpr const char* kNames[] = {"kEqual",  "kUnequal", "kBelow",
                                      "kAtMost", "kAbove",   "kAtLeast"};
    const PairTerm& term = found.terms[i];
    relations += fmt::format("{}TermRelation::{}", i == 0 ? "" : ", ",
                             kNames[static_cast<int>(term.relation)]);
    of_query += fmt::format("    if constexpr (kTerm == {}) return ({});\n", i, term.of_query);
    of_key += fmt::format("    if constexpr (kTerm == {}) return ({});\n", i, term.of_key);
  }
  std::string lines = fmt::format("  static constexpr int kTerms = {};\n", found.terms.size());
  if (found.terms.empty()) return lines;
  lines += fmt::format(
      "  ATTNFORGE_DEVICE static constexpr TermRelation relation(int term) {{\n"
      "    constexpr TermRelation kRelations[] = {{{}}};\n"
      "    return kRelations[term];\n"
      "  }}\n"
      "  template <class V>\n"
      "  ATTNFORGE_DEVICE static V value_of_terms(const V* t) {{\n"
      "    return {};\n"
      "  }}\n",
      relations, value_of_terms(found));
  const auto function = [&](const char* of, const char* position, const std::string& returns) {
    lines += fmt::format(
        "  template <int kTerm>\n"
        "  ATTNFORGE_DEVICE static auto term_of_{of}([[maybe_unused]] const Words& attnforge_code, "
        "{int} batch, {int} head, {int} {position}, {int} seqlen_q, {int} seqlen_kv) {{\n"
        "{locals}"
        "{returns}"
        "  }}\n",
        fmt::arg("of", of), fmt::arg("int", wide ? "i64" : "int"), fmt::arg("position", position),
        fmt::arg("locals", locals(arguments, wide)), fmt::arg("returns", returns));
  };
  function("query", "q", of_query);
  function("key", "k", of_key);
  return lines;
}

}  // namespace

std::string struct_of_code(const Problem& problem, std::string_view mask, const PairTerms* terms,
                           bool slopes) {
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const bool wide_score = has_wide_indexes(problem.score, CodeText::kScore, problem),
             wide_mask = has_wide_indexes(mask, CodeText::kMask, problem);
  const Places of_score = places_of(wide_score), of_mask = places_of(wide_mask);
  const bool has_tanh = names(problem.score, "tanhf") || names(problem.score, "tanh");
  std::string lines = wide_score || wide_mask ? "#include \"parts/user_code/wide_indexes.cuh\"\n"
                                              : "";
  lines += fmt::format(
      "namespace attnforge {{\n"
      "struct UserCode {{\n"
      "  using Words = CodeParams<{words}>;\n"
      "  static constexpr bool kScoreReadsByKey = {score_by_key}, kMaskReadsByKey = "
      "{mask_by_key}, kTanh = {tanh};\n",
      fmt::arg("words", code_words(problem)), fmt::arg("tanh", has_tanh),
      fmt::arg("score_by_key", reads_by_key(problem.score, arguments)),
      fmt::arg("mask_by_key", reads_by_key(mask, arguments)));
  if (!problem.score.empty()) {
    const std::size_t aligned = place_of_aligned(arguments);
    const bool by_rows = aligned < arguments.size();
    if (by_rows)
      lines += fmt::format(
          "  using RowElement = {};\n"
          "  static constexpr bool kEvenRows = {};\n",
          element_of(arguments[aligned]), reads_even_rows(problem));
    lines += fmt::format(
        "  template <class Tanh, class S{}>\n"
        "  ATTNFORGE_DEVICE static auto score([[maybe_unused]] const Words& attnforge_code, "
        "[[maybe_unused]] const Tanh& attnforge_tanh, S s, {}{}) {{\n"
        "{}"
        "{}"
        "{}"
        "{}"
        "  }}\n",
        by_rows ? ", class Reads = FromMemory" : "", of_score.taken,
        by_rows ? ", const Reads& attnforge_reads = {}" : "", of_score.first_line,
        locals(arguments, wide_score, by_rows),
        !has_tanh ? ""
        : slopes  ? kSlopeTanhNames
                  : kTanhNames,
        lines_of("score", "return value_of_score((", problem.score, "));"));
  }
  if (writes_dargs(problem))
    lines += fmt::format("  static constexpr bool kAddsElement = {};\n", adds_element(problem));
  if (!problem.dargs.empty()) {
    const int reads = most_array_reads(problem);
    lines += fmt::format(
        "  static constexpr int kMostReads = {};  // 0: unknown\n"
        "  static constexpr bool kReadsWithoutQuery = {}, kSlopeIsOne = {};\n"
        "  template <class Tanh, class S>\n"
        "  ATTNFORGE_DEVICE static auto score_of_reads([[maybe_unused]] const Words& "
        "attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, OneRead& attnforge_reads, "
        "S s, {}) {{\n"
        "{}"
        "{}"
        "{}"
        "{}"
        "  }}\n",
        reads <= kMostReadsAtOnce ? reads : 0, dargs_without_query(problem),
        adds_to_score(problem.score) && problem.softcap == 0, of_score.taken, of_score.first_line,
        locals_of_reads(problem, arguments, wide_score), has_tanh ? kSlopeTanhNames : "",
        lines_of("score", "return value_of_score((", problem.score, "));"));
  }
  if (!mask.empty()) {
    lines += fmt::format(
        "  ATTNFORGE_DEVICE static bool mask([[maybe_unused]] const Words& attnforge_code, {}) {{\n"
        "{}"
        "{}"
        "{}"
        "  }}\n",
        of_mask.taken, of_mask.first_line, locals(arguments, wide_mask),
        lines_of("mask", "return value_of_mask((", mask, "));"));
    if (terms != nullptr)
      lines += lines_of_terms(*terms, arguments, wide_mask) +
               lines_of_place(mask, arguments, wide_mask);
  }
  return lines + "};\n}  // namespace attnforge\n";
}

}  // namespace attnforge
