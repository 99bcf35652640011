// problems.h - problems from the command line and from files: their words, of which some have
// several values, and blanks between double quotes do not end one.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge::cli {

/// Whether a word says what to compute ("fwd"), as the first one of a problem does.
bool is_operation(std::string_view word);

/// The words of a text. Quotes are part of a word. Between them a backslash takes its meaning from
/// the character after it.
std::vector<std::string> split_words(std::string_view text);

/// name="content", with its quotes and backslashes escaped. `name` ends in =.
std::string quoted_word(std::string_view name, std::string_view content);

/// The words of the arguments of a program. A shell has taken the quotes off an argument such as
/// score="s * 2", so one that begins with score=, mask= or args= and does not go on with a quote is
/// one word, and gets them back.
std::vector<std::string> words_of(const std::vector<std::string>& arguments);

/// The texts of all combinations, the last word's values fastest:
///   "fwd bf16,fp16 seqlen=512,1024 head_dim=64 causal,full"
/// is eight problems. A word "name=a,b" has values of a field, any other word with commas is a
/// choice of words, of which "full" stands for none (no mask). A text without commas is itself.
/// Throws Error(kInvalidProblem) for an empty value and for more than kMostProblems.
std::vector<std::string> expand_sweep(std::string_view text);

inline constexpr std::size_t kMostProblems = 10000;

/// "sm_86,sm_90a" to its names. One argument, so that a problem's words may follow the option.
std::vector<std::string> names_of(const std::string& list);

/// The problem of a text: parse_problem(), or what options make of it (cli/parts/part.h).
using ReadText = std::function<Problem(const std::string&)>;

/// Arguments are words or quoted groups of words; each operation ("fwd") begins a new problem.
/// Throws Error(kInvalidProblem) naming the bad word, else as `read`.
std::vector<Problem> problems_from_words(const std::vector<std::string>& arguments,
                                         const ReadText& read = parse_problem);

/// A problem a line; # begins a comment, empty lines are skipped. Errors begin with "name:line: ".
std::vector<Problem> problems_from_text(std::string_view text, const std::string& name,
                                        const ReadText& read = parse_problem);

/// From the file `path` ("-": standard input) if it is not "", else from words. Throws
/// Error(kInvalidArgument) when both or none are given, Error(kIo) when the file cannot be read.
std::vector<Problem> read_problems(const std::vector<std::string>& arguments,
                                   const std::string& path, const std::string& verb,
                                   const ReadText& read = parse_problem);

/// Every n-th problem from the i-th on, of a shard "i/n" with i from 0: those of all n are all
/// problems, once. "": all. Throws Error(kInvalidArgument).
std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems,
                                       const std::string& shard);

/// The one problem of verbs that take one. Throws Error(kInvalidArgument) for none or several.
Problem read_problem(const std::vector<std::string>& arguments, const std::string& verb,
                     const ReadText& read = parse_problem);

}  // namespace attnforge::cli
