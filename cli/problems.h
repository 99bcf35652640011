// problems.h - problems from the command line and from files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "cli/code_options.h"

namespace attnforge::cli {

/// Whether a word says what to compute ("fwd"), as the first one of a problem does.
bool is_operation(std::string_view word);

/// Splits at blanks.
std::vector<std::string> words_of(const std::vector<std::string>& arguments);

/// "sm_86,sm_90a" to its names. One argument, so that a problem's words may follow the option.
std::vector<std::string> names_of(const std::string& list);

/// Arguments are words or quoted groups of words; each operation ("fwd") begins a new problem.
/// Words may have several values (sweep.h): then it is one problem for each combination. Each gets
/// the texts and arguments of `code`. Throws Error(kInvalidProblem) naming the bad word, else as
/// problem_of_text().
std::vector<Problem> problems_from_words(const std::vector<std::string>& arguments,
                                         const CodeOptions& code = {});

/// A problem a line; # begins a comment, empty lines are skipped. Errors begin with "name:line: ".
std::vector<Problem> problems_from_text(std::string_view text, const std::string& name,
                                        const CodeOptions& code = {});

/// From the file `path` ("-": standard input) if it is not "", else from words. Throws
/// Error(kInvalidArgument) when both or none are given, Error(kIo) when the file cannot be read.
std::vector<Problem> read_problems(const std::vector<std::string>& arguments,
                                   const std::string& path, const std::string& verb,
                                   const CodeOptions& code = {});

/// The one problem of verbs that take one. Throws Error(kInvalidArgument) for none or several.
Problem read_problem(const std::vector<std::string>& arguments, const std::string& verb,
                     const CodeOptions& code = {});

}  // namespace attnforge::cli
