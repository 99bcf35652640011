// fields.h - the words of a problem's text as one table: what each means, which member of
// Problem it gives, what that may be, and what a bucket makes of it. Parsing, formatting,
// validation, buckets, the hash and the help walk it, and name no word.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attnforge/problem.h"
#include "attnforge/problem_words.h"
#include "generator/text/throw_error.h"

namespace attnforge {

enum class FieldKind : std::uint8_t {
  kInteger,
  kFlag,    // there or not
  kNumber,  // with a fraction
  kChoice,  // one of some words
  kText,    // in double quotes
  kPair,    // two integers at once, first:second; the second follows the first if it is not given
  kDType,   // of all tensors, by its name alone
};

/// What a word gives. A pair and a dtype give nothing of their own.
struct FieldValue {
  FieldKind kind;
  bool (*is_set)(const Problem&);  // whether it is part of the text
  /// The value of an integer or a flag; of a choice its place among `choices`. A value that is set
  /// must be ok().
  std::int64_t (*get)(const Problem&) = nullptr;
  void (*set)(Problem&, std::int64_t) = nullptr;
  bool (*ok)(std::int64_t) = nullptr;
  float Problem::*number = nullptr;
  bool (*number_ok)(float) = nullptr;
  std::string Problem::*text = nullptr;
  std::span<const std::string_view> choices{};
  std::string_view first{}, second{};  // the words of a pair's members
};

/// Ops that have a word, as bits.
using Ops = unsigned;
constexpr Ops only(Op op) { return 1u << static_cast<unsigned>(op); }
inline constexpr Ops kAttention = only(Op::kForward) | only(Op::kBackward);
inline constexpr Ops kNotAppend = kAttention | only(Op::kMerge);
inline constexpr Ops kNotMerge = kAttention | only(Op::kAppend);
inline constexpr Ops kAllOps = kAttention | only(Op::kMerge) | only(Op::kAppend);

struct ProblemField {
  ProblemWord word;
  FieldValue value;
  std::string_view other_names{};  // what other libraries call it or a value of it,
                                   // "varlen=packed", with blanks between
  /// How far problems are apart that differ in it, the highest bit first: a winner of one is worth
  /// a try for the other. -1: it is not.
  int apart = -1;
  /// What holds where its value stands for another. Null: the value.
  std::int64_t (*meant)(const Problem&) = nullptr;
  /// What all problems of its bucket have. Null: what the problem has.
  void (*round)(Problem&) = nullptr;
  Ops ops = kAttention;             // in others it has its default
  std::string_view not_backward{};  // of a word that does not go with it: what to do instead
  std::string_view needs{};         // another word, without which it makes no sense,
  std::string_view why_needed{};    // and what that may be: the end of a message
  std::string_view excludes{};      // another word that it does not go with,
  std::string_view instead{};       // and what to do instead
  /// Throws if its value, valid by itself, does not fit to others.
  void (*check)(const Problem&) = nullptr;

  std::string_view name() const { return word.name; }
  /// Whether it is part of the problem's text.
  bool is_set(const Problem& problem) const {
    return (ops & only(problem.op)) != 0 && value.is_set(problem);
  }
};

/// In the order of the text form, and of the help.
std::span<const ProblemField> problem_fields();
/// The op of a text's first word, if there is one of that name, and all for messages.
std::optional<Op> op_named(std::string_view name);
std::string_view words_of_ops();
/// nullptr: there is none.
const ProblemField* find_field(std::string_view name);

/// Throws Error(kInvalidProblem) unless each field has a value that it may have.
void check_fields(const Problem& problem);
void check_integer(const ProblemField& field, std::int64_t value);
/// Throws Error(kInvalidProblem) for words that do not go with others, or with the op.
void check_exclusions(const Problem& problem);
/// check() of all.
void check_relations(const Problem& problem);
/// round() of all.
void round_fields(Problem& problem);

/// "layout=bhsd", or "causal".
std::string word_text(const ProblemField& field, const Problem& problem);
/// "layout", or "dtype k": for messages.
std::string label(const ProblemField& field);

/// A hash of every field; equal problems have equal ones. No allocation.
std::uint64_t hash_of_fields(const Problem& problem);

/// Throws Error(kInvalidProblem).
template <class... Values>
[[noreturn]] void reject_problem(fmt::format_string<Values...> format, Values&&... values) {
  throw_error(ErrorCode::kInvalidProblem, "invalid problem: {}",
              fmt::format(format, std::forward<Values>(values)...));
}

/// Whether the products of sizes stay where 32-bit head and 64-bit element indices cannot overflow.
bool products_within_limits(const Problem& problem);

/// Whether gradients=fp32 changes anything: not where q, k and v are fp32.
bool has_wider_gradients(const Problem& problem);

}  // namespace attnforge
