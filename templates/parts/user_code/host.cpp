#include "templates/parts/user_code/host.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnforge/plan.h"
#include "generator/shape.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/pair_terms.h"
#include "generator/user_code/user_code.h"
#include "generator/user_code/wide_indexes.h"
#include "templates/backward/host.h"
#include "templates/host/argument.h"
#include "templates/host/assembly.h"
#include "templates/host/launch_work.h"
#include "templates/parts/key_lists/host.h"
#include "templates/parts/user_code/params.h"

namespace attnforge {

const Part& code_part();

namespace {

std::string word(std::size_t index) { return fmt::format("attnforge_code.words[{}]", index); }

/// "UserArray<float>"
std::string type_of_array(const CodeArgument& argument, bool wide) {
  if (wide && argument.type == CodeArgument::Type::kInt) return "WideArray";
  constexpr const char* kElements[] = {"float", "int", "Fp16", "Bf16", "bool"};
  return fmt::format("UserArray<{}>", kElements[static_cast<int>(argument.type)]);
}

/// "    [[maybe_unused]] const UserArray<float> slope(code.words[0]);\n"
std::string local(const CodeArgument& argument, std::size_t index, bool wide) {
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

/// The same in the function that follows reads: an array whose gradient is wanted has a word more,
/// for that.
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

std::string locals(const std::vector<CodeArgument>& arguments, bool wide) {
  std::string lines;
  for (std::size_t i = 0; i < arguments.size(); ++i) lines += local(arguments[i], i, wide);
  return lines;
}

/// In a score these stand for what the piece takes for them (parts/user_code/code.cuh). Where
/// slopes are asked for its argument may carry a derivative.
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

/// Functions term_of_query<i> and term_of_key<i> of the terms that are told of many pairs at once.
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
  std::string lines = fmt::format(
      "  static constexpr int kTerms = {};\n"
      "  static constexpr bool kAllTerms = {};\n",
      found.terms.size(), found.all);
  if (found.terms.empty()) return lines;
  lines += fmt::format(
      "  ATTNFORGE_DEVICE static constexpr TermRelation relation(int term) {{\n"
      "    constexpr TermRelation kRelations[] = {{{}}};\n"
      "    return kRelations[term];\n"
      "  }}\n",
      relations);
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
    lines += fmt::format(
        "  template <class Tanh, class S>\n"
        "  ATTNFORGE_DEVICE static auto score([[maybe_unused]] const Words& attnforge_code, "
        "[[maybe_unused]] const Tanh& attnforge_tanh, S s, {}) {{\n"
        "{}"
        "{}"
        "{}"
        "{}"
        "  }}\n",
        of_score.taken, of_score.first_line, locals(arguments, wide_score),
        !has_tanh ? ""
        : slopes  ? kSlopeTanhNames
                  : kTanhNames,
        lines_of("score", "return value_of_score((", problem.score, "));"));
  }
  if (!problem.dargs.empty()) {
    constexpr int kMostAtOnce = 4;
    const int reads = most_array_reads(problem);
    lines += fmt::format(
        "  static constexpr int kMostReads = {};  // 0: nobody knows\n"
        "  template <class Tanh, class S>\n"
        "  ATTNFORGE_DEVICE static auto score_of_reads([[maybe_unused]] const Words& "
        "attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, OneRead& attnforge_reads, "
        "S s, {}) {{\n"
        "{}"
        "{}"
        "{}"
        "{}"
        "  }}\n",
        reads <= kMostAtOnce ? reads : 0, of_score.taken, of_score.first_line,
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
    if (terms != nullptr) lines += lines_of_terms(*terms, arguments, wide_mask);
  }
  return lines + "};\n}  // namespace attnforge\n";
}

std::size_t code_words(const Problem& problem) {
  const std::size_t count = code_words_of_run(problem);
  return std::max<std::size_t>(2, (count + 1) / 2 * 2);
}

namespace {

void bind_code_words(std::span<std::byte> place, const Tensors& tensors, const RunMemory&) {
  if (!place.empty()) std::memcpy(place.data(), tensors.code_arguments, place.size());
}

}  // namespace

OwnArgument code_argument(const Problem& problem) {
  const std::size_t bytes = code_words_of_run(problem) * sizeof(std::uint64_t);
  return {static_cast<std::uint32_t>(bytes), bind_code_words};
}

std::string with_code_params(const Problem& problem, std::string_view params) {
  return fmt::format("WithCode<{}, {}>", params, code_words(problem));
}

std::size_t code_params_bytes(const Problem& problem) {
  return code_words(problem) * sizeof(std::uint64_t);
}

void add_code_params(Argument& argument, const Problem& problem) {
  argument.zeros(code_params_bytes(problem), alignof(CodeParams<2>), code_argument(problem));
}

namespace {

/// What the text makes of scores, and its derivatives: it sees what the Score before it leaves.
void wrap_score(PieceSet& pieces, const Assembly& a) {
  const std::string before = pieces.type(Slot::kScore);
  pieces.wrap(Slot::kScore, {"UserScore<UserCode, {}>", "parts/user_code/score.cuh"});
  if (a.kernel.slopes && a.kernel.pieces->exact)
    pieces.fill(Slot::kSlope,
                {fmt::format("UserSlope<UserCode, {}>", before), "parts/user_code/slope.cuh"});
  else if (a.kernel.slopes)
    pieces.wrap(Slot::kSlope, {fmt::format("UserSlope<UserCode, {}, {{}}>", before),
                               "parts/user_code/slope.cuh"});
  if (a.problem.dargs.empty()) return;
  pieces.include("parts/user_code/array_reads.cuh");
  pieces.fill(Slot::kDargs, {fmt::format("DargsOfRows<UserCode, UserRow<UserCode>, {}>", before),
                             "parts/user_code/dargs.cuh"});
}

/// What the mask's text hides. Who asks it: lists of keys, of which it is the source where blocks
/// are not, and a rule; bits of query tiles, in blocks that are partial; else the mask itself.
void fill_mask(PieceSet& pieces, const Assembly& a) {
  if (a.gathers()) {
    if (!has_block_mask(a.problem))
      pieces.fill(Slot::kListSource, {"TextSource", "parts/user_code/list_source.cuh"});
    std::string rule = "UserRule<UserCode>";
    if (a.shape.text_bits)
      rule = fmt::format("TextBits<kConfig.{}, kConfig.{}>", a.kernel.block_m, a.kernel.block_n);
    const char* const header = a.shape.text_bits ? "parts/user_code/list_rule.cuh"
                                                 : "parts/user_code/mask.cuh";
    if (a.shape.mask_bits)
      pieces.wrap(Slot::kListRule, {fmt::format("BothRules<{{}}, {}>", rule), header});
    else
      pieces.fill(Slot::kListRule, {std::move(rule), header});
  } else if (a.kernel.gradients != nullptr && has_block_mask(a.problem)) {
    pieces.fill(Slot::kBlockRule, {"BlockText<UserCode>", "parts/user_code/block_rule.cuh"});
  } else {
    if (a.kernel.gradients != nullptr)
      pieces.fill(Slot::kQueries, {kMaskedQueryWalk, "backward/query_walk.cuh"});
    pieces.fill(Slot::kMask, {fmt::format("UserMask<UserCode, {}>", pieces.dense(Slot::kMask)),
                              "parts/user_code/mask.cuh"});
    pieces.fill(Slot::kWalk, {fmt::format("MaskedWalk<{}>", pieces.dense(Slot::kWalk)),
                              "pieces/masked_walk.cuh"});
  }
}

/// The struct UserCode of the entry, whose functions are the texts, and the pieces that call them.
void fill_by_code(Entry& entry, const Assembly& a) {
  const Problem& problem = a.problem;
  entry.pieces.include("parts/user_code/code.cuh");
  if (a.kernel.coarse) entry.options = {"--prec-div=false", "--prec-sqrt=false"};
  const bool of_text = a.gathers() && !has_block_mask(problem);
  const PairTerms terms = of_text ? pair_terms(problem) : PairTerms();
  entry.declarations += struct_of_code(problem, mask_code(problem), of_text ? &terms : nullptr,
                                       a.kernel.slopes);
  if (has_score_code(problem)) wrap_score(entry.pieces, a);
  if (a.shape.user_mask != 0) fill_mask(entry.pieces, a);
}

/// What rows see of each group of keys by the text, before lists are made of it.
constexpr const char* kStatesKernel = "mask_states";
constexpr Step kStates{
    .kernel = kStatesKernel,
    .in =
        [](const Assembly& a) {
          return a.lists_by_steps() && a.shape.user_mask != 0 && !has_block_mask(a.problem);
        },
    .text =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.include("parts/user_code/mask.cuh");
          entry.pieces.include("parts/user_code/step_states.cuh");
          entry.pieces.include("parts/user_code/terms.cuh");
          return Step::Text{.threads = kListStepThreads,
                            .blocks_per_sm = kListStepBlocks,
                            .type = fmt::format("MaskStates<Pieces::Lengths, UserRule<UserCode>, "
                                                "UserTerms<UserCode>, kConfig.{}, kConfig.{}, {}, "
                                                "kConfig.text_bits>",
                                                a.kernel.block_m, a.kernel.block_n,
                                                entry.pieces.dense(Slot::kMask))};
        },
    .launch =
        [](const LaunchWork& work) {
          return list_step(kStatesKernel, state_blocks(tile_lists(work)));
        }};

}  // namespace

int slope_registers(const Problem& problem, int scores) {
  return has_score_code(problem) && !adds_to_score(problem.score) ? scores : 0;
}

const Part& code_part() {
  static constexpr Part kPart{
      .name = "user_code",
      .in = [](const Assembly& a) { return has_score_code(a.problem) || a.shape.user_mask != 0; },
      .type = [](const Assembly& a,
                 std::string_view params) { return with_code_params(a.problem, params); },
      .bytes = [](const Assembly& a) { return code_params_bytes(a.problem); },
      .add = [](Argument& argument,
                const LaunchWork& work) { add_code_params(argument, work.problem()); },
      .fill = fill_by_code,
      .steps = {&kStates, 1},
      .suffix = code_suffix};
  return kPart;
}

}  // namespace attnforge
