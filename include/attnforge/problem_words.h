// problem_words.h - every word of a problem's text (attnforge/problem.h), for people, and what a
// misspelt one means.
#pragma once

#include <span>
#include <string_view>

#include "attnforge/cxx20.h"

namespace attnforge {

/// A row of the table: of the program's help, and of docs/PROBLEM.md.
struct ProblemWord {
  std::string_view name;  // before the "=": "seqlen"
  std::string_view form;  // as it is written: "seqlen=Q:KV"
  std::string_view meaning;
  std::string_view fallback;  // what holds where the word is left out
  std::string_view allowed;   // values; "": the word has none
};

/// In the order of the help. Words that give one of two sizes ("seqlen_q") come after the one for
/// both.
std::span<const ProblemWord> problem_words();

/// The one of `words` that is meant by the misspelt `name`, or "" where that would be a guess: more
/// than a third of it is otherwise. Takes time by the square of its length. No allocation outlives
/// the call.
std::string_view nearest_word(std::string_view name, std::span<const std::string_view> words);

}  // namespace attnforge
