// problem_words.h - every word of a problem's text (attnforge/problem.h), for people, and what a
// misspelt one means.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>

#include "attnforge/problem.h"

namespace attnforge {

/// A row of the table: of the program's help, and of docs/PROBLEM.md.
struct ProblemWord {
  std::string_view name;  // before the "=": "seqlen"
  std::string_view form;  // as it is written: "seqlen=Q:KV"
  std::string_view meaning;
  std::string_view fallback;  // what holds where the word is left out
  std::string_view allowed;   // values; "": the word has none
  bool has_column = false;    // tables of benchmarks have a column for it
};

/// In the order of the help. Words that give one of two sizes ("seqlen_q") come after the one for
/// both.
ATTNFORGE_API std::span<const ProblemWord> problem_words();

/// What holds in a problem by the word `name`, one of problem_words() that is not of two sizes nor
/// a dtype: a whole number (1 or 0 of a word that has no values), a number with a fraction, or a
/// name or text, which lives as long as the problem does. Throws Error(kInvalidArgument) for
/// others.
using ProblemWordValue = std::variant<std::int64_t, double, std::string_view>;
ATTNFORGE_API ProblemWordValue value_of_word(const Problem& problem, std::string_view name);

/// The one of `words` that is meant by the misspelt `name`, or "" where that would be a guess: more
/// than a third of it is otherwise. Takes time by the square of its length. No allocation outlives
/// the call.
ATTNFORGE_API std::string_view nearest_word(std::string_view name,
                                            std::span<const std::string_view> words);

}  // namespace attnforge
