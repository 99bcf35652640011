// text.cpp - the text form of a problem: parse_problem and to_string.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <vector>

#include "attnforge/problem.h"
#include "attnforge/problem_words.h"
#include "generator/problem/fields.h"
#include "generator/text/words.h"

namespace attnforge {
namespace {

/// The words that give the dtypes of q, k, v and o, and nothing else is like them: without any of
/// them one word is of all.
constexpr std::string_view kDTypeFields[] = {"q", "k", "v", "o"};
constexpr DType Problem::*kDTypeMembers[] = {&Problem::dtype_q, &Problem::dtype_k,
                                             &Problem::dtype_v, &Problem::dtype_o};

bool is_pair(const ProblemField& field) { return !field.value.second.empty(); }

// ---- unknown words ----

std::vector<std::string_view> known_words() {
  std::vector<std::string_view> words;
  for (const ProblemField& field : problem_fields()) words.push_back(field.name());
  return words;
}

/// Other libraries' names of the words, without what they may set.
std::vector<std::string_view> other_names() {
  std::vector<std::string_view> names;
  for (const ProblemField& field : problem_fields()) {
    std::string_view others = field.other_names;
    for (std::string_view other = next_word(others); !other.empty(); other = next_word(others))
      names.push_back(other.substr(0, other.find('=')));
  }
  return names;
}

/// The word that other libraries call so, with "=" if it takes a value; "": none.
std::string here_called(std::string_view name) {
  for (const ProblemField& field : problem_fields()) {
    std::string_view others = field.other_names;
    for (std::string_view other = next_word(others); !other.empty(); other = next_word(others)) {
      const std::size_t equals = std::min(other.find('='), other.size());  // "varlen=packed"
      if (other.substr(0, equals) != name) continue;
      if (equals < other.size()) return fmt::format("{}{}", field.name(), other.substr(equals));
      return fmt::format("{}{}", field.name(), field.word.allowed.empty() ? "" : "=");
    }
  }
  return "";
}

/// What is meant by a word whose name is not known, or "" where that would be a guess. A misspelt
/// word keeps its value if that is short; that of another library's word may count otherwise.
std::string meant_by(std::string_view name, std::string_view value) {
  if (std::string here = here_called(name); !here.empty()) return here;
  const std::string_view nearest = nearest_word(name, known_words());
  if (nearest.empty()) return here_called(nearest_word(name, other_names()));
  if (find_field(nearest)->word.allowed.empty()) return std::string(nearest);
  constexpr std::size_t kShort = 16;
  const bool keeps = value.size() <= kShort && value.find('"') == value.npos;
  return fmt::format("{}={}", nearest, keeps ? value : "");
}

/// Words that people try, and what of them there is.
struct NotImplemented {
  std::string_view name, instead;
};
constexpr std::string_view kLowBits = "k and v may be, as in k=e4m3 v=e4m3 kv_scale=token";
constexpr NotImplemented kNotImplemented[] = {
    {"e5m2", kLowBits},           {"int8", kLowBits},          {"int4", kLowBits},
    {"q8_0", kLowBits},           {"q4_0", kLowBits},          {"fp4", ""},
    {"fp64", "take fp32"},        {"dropout", "leave it out"}, {"dropout_p", "leave it out"},
    {"p_dropout", "leave it out"}};

/// "" for others.
std::string not_implemented(std::string_view word, std::string_view name) {
  const auto found = std::ranges::find(kNotImplemented, name, &NotImplemented::name);
  if (found == std::end(kNotImplemented)) return "";
  const std::string_view blank = found->instead.empty() ? "" : ": ";
  return fmt::format("\"{}\" is not implemented{}{}", word, blank, found->instead);
}

/// The part before "=".
std::string_view name_of(std::string_view word) { return word.substr(0, word.find('=')); }

/// Refuses all words of `text` that are not known in one message, so that they are mended at once.
void refuse_unknown_words(std::string_view text) {
  constexpr std::size_t kLongest = 64;  // of a word that is shown: more than any known one has
  constexpr std::size_t kMost = 8;      // that are shown
  std::vector<std::string> shown;
  std::size_t count = 0;
  std::string meant, missing;
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    if (find_field(name_of(word)) != nullptr || ++count > kMost) continue;
    const std::string_view start = word.substr(0, kLongest), name = name_of(word);
    missing = not_implemented(start, name);
    if (!missing.empty()) {
      shown.push_back(missing);
      continue;
    }
    meant = meant_by(name.substr(0, kLongest), word.substr(std::min(name.size() + 1, word.size())));
    shown.push_back(fmt::format("\"{}{}\"{}", start, word.size() > kLongest ? "..." : "",
                                meant.empty() ? "" : fmt::format("; did you mean \"{}\"?", meant)));
  }
  if (count == 0) return;
  if (count == 1 && !missing.empty())
    reject_problem("{}; attnforge help problem has every word", missing);
  if (count == 1)
    reject_problem("unknown word {}{} attnforge help problem has every word", shown[0],
                   meant.empty() ? ";" : "");
  std::string all;
  for (const std::string& each : shown) all += fmt::format("\n{}", each);
  if (count > kMost) all += fmt::format("\nand {} more", count - kMost);
  reject_problem("{} unknown words; attnforge help problem has every word:{}", count, all);
}

// ---- parsing ----

/// Which word gave each field, so that a second one is refused by name.
class Given {
 public:
  bool has(std::string_view field) const { return words_.count(field) != 0; }
  void add(std::string_view field, std::string_view word) {
    const auto [earlier, is_new] = words_.emplace(field, word);
    if (is_new) return;
    reject_problem("\"{}\" gives {} again after \"{}\"; give it once", word, field,
                   earlier->second);
  }

 private:
  std::map<std::string_view, std::string_view> words_;
};

[[noreturn]] void refuse_value(const ProblemField& field, std::string_view word,
                               std::string_view text) {
  reject_problem("\"{}\": {} must be {}, not \"{}\"", word, label(field), field.word.allowed, text);
}

template <class Number>
Number parse_number(const ProblemField& field, std::string_view word, std::string_view text) {
  Number value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) refuse_value(field, word, text);
  return value;
}

void parse_integer(Problem& problem, Given& given, const ProblemField& field, std::string_view word,
                   std::string_view text) {
  given.add(field.name(), word);
  const auto value = parse_number<std::int64_t>(field, word, text);
  check_integer(field, value);
  field.value.set(problem, value);
}

void parse_pair(Problem& problem, Given& given, const FieldValue& pair, std::string_view word,
                std::string_view text) {
  const std::size_t colon = text.find(':');
  parse_integer(problem, given, *find_field(pair.first), word, text.substr(0, colon));
  if (colon != text.npos)
    parse_integer(problem, given, *find_field(pair.second), word, text.substr(colon + 1));
}

std::int64_t parse_choice(const ProblemField& field, std::string_view word, std::string_view text) {
  const auto found = std::ranges::find(field.value.choices, text);
  if (found == field.value.choices.end()) refuse_value(field, word, text);
  return found - field.value.choices.begin();
}

/// The content of a quoted text. A text without blanks and quotes may stand as it is.
std::string unquoted(std::string_view name, std::string_view text) {
  if (!text.starts_with('"')) {
    if (text.find_first_of("\"\\") == text.npos) return std::string(text);
    reject_problem("{} has a quote inside; write {}=\"...\", with \\\" for a quote", name, name);
  }
  std::string content;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (text[i] == '"') {
      if (i + 1 == text.size()) return content;
      reject_problem("{} goes on after its closing quote; write \\\" for a quote inside", name);
    }
    if (text[i] != '\\') {
      content += text[i];
      continue;
    }
    const char escaped = ++i < text.size() ? text[i] : ' ';
    if (escaped != '"' && escaped != '\\' && escaped != 'n')
      reject_problem("{} has a backslash before '{}'; \\\", \\\\ and \\n are known", name, escaped);
    content += escaped == 'n' ? '\n' : escaped;
  }
  reject_problem("{} has no closing quote; write {}=\"...\"", name, name);
}

std::string in_quotes(std::string_view content) {
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
  const ProblemField* field = find_field(word);
  if (field->value.kind == FieldKind::kFlag) {
    given.add(word, word);
    field->value.set(problem, 1);
  } else if (field->value.kind == FieldKind::kDType) {
    given.add("dtype", word);
    dtype = dtype_named(word);
  } else {
    reject_problem("\"{}\" needs a value: {}=...", word, word);
  }
}

void parse_assignment(Problem& problem, Given& given, std::string_view word, std::size_t equals) {
  const std::string_view name = word.substr(0, equals), text = word.substr(equals + 1);
  const ProblemField* field = find_field(name);
  const FieldValue& value = field->value;
  if (is_pair(*field)) return parse_pair(problem, given, value, word, text);
  switch (value.kind) {
    case FieldKind::kInteger:
      return parse_integer(problem, given, *field, word, text);
    case FieldKind::kNumber:
      given.add(field->name(), word);
      problem.*value.number = parse_number<float>(*field, word, text);
      return;
    case FieldKind::kChoice:
      given.add(field->name(), word);
      return value.set(problem, parse_choice(*field, word, text));
    case FieldKind::kText:
      given.add(field->name(), field->name());
      problem.*value.text = unquoted(name, text);
      return;
    case FieldKind::kFlag:
    case FieldKind::kDType:
    case FieldKind::kPair:
      break;
  }
  reject_problem("\"{}\": {} takes no value; it is there or it is not", word, name);
}

// ---- formatting ----

std::string value_text(const FieldValue& value, const Problem& p) {
  switch (value.kind) {
    case FieldKind::kInteger:
      return fmt::format("{}", value.get(p));
    case FieldKind::kNumber:  // the shortest digits that read back exactly
      return fmt::format("{}", p.*value.number);
    case FieldKind::kChoice: {
      const auto index = static_cast<std::size_t>(value.get(p));
      return std::string(index < value.choices.size() ? value.choices[index] : "unknown");
    }
    case FieldKind::kText:
      return in_quotes(p.*value.text);
    case FieldKind::kPair:
      return fmt::format("{}:{}", find_field(value.first)->value.get(p),
                         find_field(value.second)->value.get(p));
    case FieldKind::kFlag:
    case FieldKind::kDType:
      break;
  }
  return "";
}

}  // namespace

std::string word_text(const ProblemField& field, const Problem& problem) {
  // Texts are long, and quoted.
  const std::string value = field.value.kind == FieldKind::kText ? ""
                                                                 : value_text(field.value, problem);
  return value.empty() ? std::string(field.name()) : fmt::format("{}={}", field.name(), value);
}

Problem parse_problem(std::string_view text) {
  const std::string_view first = next_word(text);
  if (first.empty())
    reject_problem("the text is empty; it begins with {}, as in \"fwd bf16 seqlen=4096\"",
                   words_of_ops());
  const std::optional<Op> op = op_named(first);
  if (!op) reject_problem("op \"{}\" must be {}; it is the first word", first, words_of_ops());

  refuse_unknown_words(text);
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

  for (std::size_t i = 0; i < std::size(kDTypeFields); ++i) {
    const bool is_o = kDTypeMembers[i] == &Problem::dtype_o;
    if (dtype && !given.has(kDTypeFields[i]) && !(is_o && is_low_bit(*dtype)))
      problem.*kDTypeMembers[i] = *dtype;
  }
  for (const ProblemField& field : problem_fields()) {
    if (is_pair(field) && !given.has(field.value.second)) {
      const std::int64_t first = find_field(field.value.first)->value.get(problem);
      find_field(field.value.second)->value.set(problem, first);
    }
  }
  validate(problem);
  return problem;
}

std::string to_string(const Problem& p) {
  std::string text(to_string(p.op));
  if (p.dtype_q == p.dtype_k && p.dtype_q == p.dtype_v && p.dtype_q == p.dtype_o) {
    text += fmt::format(" {}", to_string(p.dtype_q));
  } else if (p.op == Op::kAppend) {
    text += fmt::format(" {} k={} v={}", to_string(p.dtype_q), to_string(p.dtype_k),
                        to_string(p.dtype_v));
  } else if (p.op == Op::kMerge) {
    text += fmt::format(" {} o={}", to_string(p.dtype_q), to_string(p.dtype_o));
  } else {
    for (std::size_t i = 0; i < std::size(kDTypeFields); ++i)
      text += fmt::format(" {}={}", kDTypeFields[i], to_string(p.*kDTypeMembers[i]));
  }
  for (const ProblemField& field : problem_fields()) {
    if (!field.is_set(p)) continue;
    text += fmt::format(" {}", field.name());
    if (field.value.kind != FieldKind::kFlag) text += '=' + value_text(field.value, p);
  }
  return text;
}

}  // namespace attnforge
