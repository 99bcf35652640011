// problem_text.cpp - the text form of a problem: parse_problem and to_string.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "attnforge/problem_words.h"
#include "generator/problem_fields.h"
#include "generator/words.h"

namespace attnforge {
namespace {

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidProblem, "invalid problem: " + message);
}

// ---- words that are not numbers ----

struct DTypeField {
  std::string_view name;
  DType Problem::*member;
};
constexpr DTypeField kDTypeFields[] = {{"q", &Problem::dtype_q},
                                       {"k", &Problem::dtype_k},
                                       {"v", &Problem::dtype_v},
                                       {"o", &Problem::dtype_o}};
constexpr DType kDTypes[] = {DType::kFp32, DType::kFp16, DType::kBf16};
constexpr Layout kLayouts[] = {Layout::kBshd, Layout::kBhsd, Layout::kPackedQkv};
constexpr Lengths kLengths[] = {Lengths::kFixed, Lengths::kPacked, Lengths::kUsed};
constexpr Op kOps[] = {Op::kForward, Op::kBackward};
constexpr Rope kRopes[] = {Rope::kNone, Rope::kInterleaved, Rope::kHalf};

struct FlagField {
  std::string_view name;
  bool Problem::*member;
};
constexpr FlagField kFlags[] = {{"causal", &Problem::causal},
                                {"lse", &Problem::lse},
                                {"tf32", &Problem::tf32},
                                {"sinks", &Problem::sinks},
                                {"batch_invariant", &Problem::batch_invariant},
                                {"deterministic", &Problem::deterministic},
                                {"accumulate", &Problem::accumulate},
                                {"dlse", &Problem::dlse},
                                {"mask_bits", &Problem::mask_bits}};

struct FloatField {
  std::string_view name;
  float Problem::*member;
  std::string_view allowed;
};
constexpr FloatField kFloats[] = {{"softcap", &Problem::softcap, kFactorAllowed},
                                  {"softmax_scale", &Problem::softmax_scale, kFactorAllowed},
                                  {"density", &Problem::density, kDensityAllowed}};

struct TextField {
  std::string_view name;
  std::string Problem::*member;
};
constexpr TextField kTexts[] = {{"args", &Problem::args},
                                {"score", &Problem::score},
                                {"mask", &Problem::mask},
                                {"dargs", &Problem::dargs}};

/// name=first:second or name=first. Without the second, it follows the first unless its own word is
/// there.
struct PairField {
  std::string_view name, first, second;
};
constexpr PairField kPairs[] = {{"num_heads", "num_heads_q", "num_heads_kv"},
                                {"seqlen", "seqlen_q", "seqlen_kv"},
                                {"tokens", "tokens_q", "tokens_kv"},
                                {"head_dim", "head_dim", "head_dim_v"},
                                {"blocks", "mask_block_q", "mask_block_kv"}};

template <class Row, std::size_t N>
const Row* find_row(const Row (&rows)[N], std::string_view name, std::string_view Row::*column) {
  const Row* found = std::find_if(std::begin(rows), std::end(rows),
                                  [&](const Row& row) { return row.*column == name; });
  return found == std::end(rows) ? nullptr : found;
}
template <class Row, std::size_t N>
const Row* find_row(const Row (&rows)[N], std::string_view name) {
  return find_row(rows, name, &Row::name);
}

std::optional<DType> dtype_named(std::string_view text) {
  for (DType dtype : kDTypes) {
    if (text == to_string(dtype)) return dtype;
  }
  return {};
}

// ---- unknown words ----

std::vector<std::string_view> known_words() {
  std::vector<std::string_view> words;
  for (const ProblemWord& word : problem_words()) words.push_back(word.name);
  return words;
}

/// What other libraries call it, and the words here.
struct OtherName {
  std::string_view theirs, here;
};
constexpr OtherName kOtherNames[] = {{"window", "window_left="},
                                     {"sliding_window", "window_left="},
                                     {"window_size", "window_left="},
                                     {"is_causal", "causal"},
                                     {"heads", "num_heads="},
                                     {"nheads", "num_heads="},
                                     {"n_heads", "num_heads="},
                                     {"kv_heads", "num_heads_kv="},
                                     {"head_size", "head_dim="},
                                     {"hdim", "head_dim="},
                                     {"d", "head_dim="},
                                     {"b", "batch="},
                                     {"seq", "seqlen="},
                                     {"sequence_length", "seqlen="},
                                     {"scale", "softmax_scale="},
                                     {"sm_scale", "softmax_scale="},
                                     {"logits_soft_cap", "softcap="},
                                     {"dtype", "bf16"},
                                     {"bfloat16", "bf16"},
                                     {"float16", "fp16"},
                                     {"half", "fp16"},
                                     {"float", "fp32"},
                                     {"float32", "fp32"},
                                     {"varlen", "lengths=packed"},
                                     {"pages", "page_size="},
                                     {"paged", "page_size="},
                                     {"block_size", "blocks="},
                                     {"sparsity", "density="}};

/// Edit distance where a letter too few or too many costs 2 and a wrong one 3: seqlen_k is nearer
/// to seqlen_kv than to seqlen_q.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = 2 * j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = 2 * i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 3);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 2, row[j - 1] + 2});
    }
  }
  return row[b.size()];
}

/// The word that is meant, or "" where that would be a guess: more than a third of it is otherwise.
std::string_view meant_by(std::string_view name) {
  if (const OtherName* other = find_row(kOtherNames, name, &OtherName::theirs)) return other->here;
  const std::vector<std::string_view> words = known_words();
  const auto nearest = *std::min_element(words.begin(), words.end(),
                                         [&](std::string_view a, std::string_view b) {
                                           return edit_distance(name, a) < edit_distance(name, b);
                                         });
  return edit_distance(name, nearest) <= name.size() ? nearest : "";
}

[[noreturn]] void refuse_unknown(std::string_view word, std::string_view name) {
  constexpr std::size_t kLongest = 64;  // more than any word has: the distance takes its square
  const std::string_view meant = meant_by(name.substr(0, kLongest));
  refuse(
      fmt::format("unknown word \"{}{}\"{}. Known are {}; attnforge help problem says what each is",
                  word.substr(0, kLongest), word.size() > kLongest ? "..." : "",
                  meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant),
                  fmt::join(known_words(), ", ")));
}

// ---- parsing ----

/// Which word gave each field, so that a second one is refused by name.
class Given {
 public:
  bool has(std::string_view field) const { return words_.count(field) != 0; }
  void add(std::string_view field, std::string_view word) {
    const auto [earlier, is_new] = words_.emplace(field, word);
    if (is_new) return;
    refuse(fmt::format("\"{}\" gives {} again after \"{}\"; give it once", word, field,
                       earlier->second));
  }

 private:
  std::map<std::string_view, std::string_view> words_;
};

void parse_integer(Problem& problem, Given& given, std::string_view field_name,
                   std::string_view word, std::string_view text) {
  const IntegerField& field = integer_field(field_name);
  given.add(field.name, word);
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(fmt::format("\"{}\": {} must be {}, not \"{}\"", word, field.name, field.allowed, text));
  }
  check_field(field, value);
  field.set(problem, value);
}

void parse_pair(Problem& problem, Given& given, const PairField& pair, std::string_view word,
                std::string_view text) {
  const std::size_t colon = text.find(':');
  parse_integer(problem, given, pair.first, word, text.substr(0, colon));
  if (colon != text.npos) parse_integer(problem, given, pair.second, word, text.substr(colon + 1));
}

float parse_float(std::string_view word, const FloatField& field, std::string_view text) {
  float value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    refuse(fmt::format("\"{}\": {} must be {}, not \"{}\"", word, field.name, field.allowed, text));
  }
  return value;
}

DType parse_dtype(std::string_view word, std::string_view name, std::string_view text) {
  if (const auto dtype = dtype_named(text)) return *dtype;
  refuse(fmt::format("\"{}\": dtype {} must be fp32, fp16 or bf16, not \"{}\"", word, name, text));
}

Layout parse_layout(std::string_view word, std::string_view text) {
  for (Layout layout : kLayouts) {
    if (text == to_string(layout)) return layout;
  }
  refuse(fmt::format("\"{}\": layout must be bshd, bhsd or packed_qkv, not \"{}\"", word, text));
}

Lengths parse_lengths(std::string_view word, std::string_view text) {
  for (Lengths lengths : kLengths) {
    if (text == to_string(lengths)) return lengths;
  }
  refuse(fmt::format("\"{}\": lengths must be fixed, packed or used, not \"{}\"", word, text));
}

bool parse_gradients(std::string_view word, std::string_view text) {
  if (text == "fp32" || text == "same") return text == "fp32";
  refuse(fmt::format("\"{}\": gradients must be {}, not \"{}\"", word, kGradientsAllowed, text));
}

Rope parse_rope(std::string_view word, std::string_view text) {
  for (Rope rope : kRopes) {
    if (text == to_string(rope)) return rope;
  }
  refuse(fmt::format("\"{}\": rope must be none, interleaved or half, not \"{}\"", word, text));
}

/// The content of a quoted text. A text without blanks and quotes may stand as it is.
std::string unquoted(std::string_view name, std::string_view text) {
  if (!text.starts_with('"')) {
    if (text.find_first_of("\"\\") == text.npos) return std::string(text);
    refuse(
        fmt::format("{} has a quote inside; write {}=\"...\", with \\\" for a quote", name, name));
  }
  std::string content;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (i + 1 == text.size()) return content;
      refuse(
          fmt::format("{} goes on after its closing quote; write \\\" for a quote inside", name));
    }
    if (text[i] != '\\') {
      content += text[i];
      continue;
    }
    const char escaped = ++i < text.size() ? text[i] : ' ';
    if (escaped != '"' && escaped != '\\' && escaped != 'n')
      refuse(fmt::format("{} has a backslash before '{}'; \\\", \\\\ and \\n are known", name,
                         escaped));
    content += escaped == 'n' ? '\n' : escaped;
  }
  refuse(fmt::format("{} has no closing quote; write {}=\"...\"", name, name));
}

std::string quoted(std::string_view content) {
  std::string text = "\"";
  for (const char c : content) {
    if (c == '"' || c == '\\') text += '\\';
    if (c == '\n')
      text += "\\n";
    else
      text += c;
  }
  return text + '"';
}

/// A word without "=".
void parse_bare(Problem& problem, Given& given, std::optional<DType>& dtype,
                std::string_view word) {
  if (const FlagField* flag = find_row(kFlags, word)) {
    given.add(flag->name, word);
    problem.*flag->member = true;
  } else if (const auto named = dtype_named(word)) {
    given.add("dtype", word);
    dtype = named;
  } else {
    const std::vector<std::string_view> words = known_words();
    if (std::find(words.begin(), words.end(), word) == words.end()) refuse_unknown(word, word);
    refuse(fmt::format("\"{}\" needs a value: {}=...", word, word));
  }
}

void parse_assignment(Problem& problem, Given& given, std::string_view word, std::size_t equals) {
  const std::string_view name = word.substr(0, equals);
  const std::string_view text = word.substr(equals + 1);
  const auto integers = integer_fields();
  if (const PairField* pair = find_row(kPairs, name)) {
    parse_pair(problem, given, *pair, word, text);
  } else if (std::any_of(integers.begin(), integers.end(),
                         [&](const auto& field) { return field.name == name; })) {
    parse_integer(problem, given, name, word, text);
  } else if (const DTypeField* dtype = find_row(kDTypeFields, name)) {
    given.add(dtype->name, word);
    problem.*dtype->member = parse_dtype(word, name, text);
  } else if (const FloatField* number = find_row(kFloats, name)) {
    given.add(number->name, word);
    problem.*number->member = parse_float(word, *number, text);
  } else if (const TextField* code = find_row(kTexts, name)) {
    given.add(code->name, code->name);
    problem.*code->member = unquoted(name, text);
  } else if (name == "layout") {
    given.add("layout", word);
    problem.layout = parse_layout(word, text);
  } else if (name == "lengths") {
    given.add("lengths", word);
    problem.lengths = parse_lengths(word, text);
  } else if (name == "gradients") {
    given.add("gradients", word);
    problem.fp32_gradients = parse_gradients(word, text);
  } else if (name == "rope") {
    given.add("rope", word);
    problem.rope = parse_rope(word, text);
  } else if (find_row(kFlags, name) != nullptr || dtype_named(name)) {
    refuse(fmt::format("\"{}\": {} takes no value; it is there or it is not", word, name));
  } else {
    refuse_unknown(word, name);
  }
}

}  // namespace

Problem parse_problem(std::string_view text) {
  const std::string_view first = next_word(text);
  if (first.empty())
    refuse("the text is empty; it begins with fwd or bwd, as in \"fwd bf16 seqlen=4096\"");
  const Op* op = std::find_if(std::begin(kOps), std::end(kOps),
                              [&](Op known) { return first == to_string(known); });
  if (op == std::end(kOps))
    refuse(fmt::format("op \"{}\" must be fwd or bwd; it is the first word", first));

  Problem problem;
  problem.op = *op;
  Given given;
  std::optional<DType> dtype;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    const std::size_t equals = word.find('=');
    if (equals == word.npos) {
      parse_bare(problem, given, dtype, word);
    } else {
      parse_assignment(problem, given, word, equals);
    }
  }

  for (const DTypeField& field : kDTypeFields) {
    if (dtype && !given.has(field.name)) problem.*field.member = *dtype;
  }
  for (const PairField& pair : kPairs) {
    if (!given.has(pair.second))
      integer_field(pair.second).set(problem, integer_field(pair.first).get(problem));
  }
  validate(problem);
  return problem;
}

std::string to_string(const Problem& p) {
  const Problem defaults;
  std::string text(to_string(p.op));
  if (p.dtype_q == p.dtype_k && p.dtype_q == p.dtype_v && p.dtype_q == p.dtype_o) {
    text += fmt::format(" {}", to_string(p.dtype_q));
  } else {
    for (const DTypeField& field : kDTypeFields)
      text += fmt::format(" {}={}", field.name, to_string(p.*field.member));
  }
  // These come behind what they belong to, or at the end.
  const auto is_last = [](std::string_view name) {
    return name == "alignment" || name == "rope_dim" || name == "page_size" ||
           name.starts_with("tokens") || name.starts_with("mask_");
  };
  const auto put_integers = [&](bool sizes) {
    for (const IntegerField& field : integer_fields()) {
      if (field.is_size != sizes || is_last(field.name)) continue;
      if (sizes || field.get(p) != field.get(defaults))
        text += fmt::format(" {}={}", field.name, field.get(p));
    }
  };
  put_integers(true);
  if (p.layout != defaults.layout) text += fmt::format(" layout={}", to_string(p.layout));
  if (p.causal) text += " causal";
  put_integers(false);
  if (p.softcap != 0.0f)
    text += fmt::format(" softcap={}", p.softcap);  // the shortest digits that read back exactly
  if (p.lse) text += " lse";
  if (p.tf32) text += " tf32";
  if (p.softmax_scale != 0.0f) text += fmt::format(" softmax_scale={}", p.softmax_scale);
  if (p.sinks) text += " sinks";
  if (p.batch_invariant) text += " batch_invariant";
  if (p.deterministic) text += " deterministic";
  if (p.accumulate) text += " accumulate";
  if (p.dlse) text += " dlse";
  if (p.fp32_gradients) text += " gradients=fp32";
  if (p.lengths != Lengths::kFixed) text += fmt::format(" lengths={}", to_string(p.lengths));
  if (p.tokens_q != 0 || p.tokens_kv != 0)
    text += fmt::format(" tokens_q={} tokens_kv={}", p.tokens_q, p.tokens_kv);
  if (has_pages(p)) text += fmt::format(" page_size={}", p.page_size);
  if (p.rope != Rope::kNone) text += fmt::format(" rope={}", to_string(p.rope));
  if (p.rope_dim != 0) text += fmt::format(" rope_dim={}", p.rope_dim);
  if (has_block_mask(p)) text += fmt::format(" blocks={}:{}", p.mask_block_q, p.mask_block_kv);
  if (p.mask_heads != 1) text += fmt::format(" mask_heads={}", p.mask_heads);
  if (p.mask_batch != 1) text += fmt::format(" mask_batch={}", p.mask_batch);
  if (p.mask_bits) text += " mask_bits";
  if (p.density != 0.0f) text += fmt::format(" density={}", p.density);
  if (p.alignment_bytes != defaults.alignment_bytes)
    text += fmt::format(" alignment={}", p.alignment_bytes);
  for (const TextField& field : kTexts) {
    if (!(p.*field.member).empty())
      text += fmt::format(" {}={}", field.name, quoted(p.*field.member));
  }
  return text;
}

}  // namespace attnforge
