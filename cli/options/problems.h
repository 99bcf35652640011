// problems.h - problems from the command line and from files.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge::cli {

/// Whether a word says what to compute ("fwd"), as the first one of a problem does.
bool is_operation(std::string_view word);

/// "sm_86,sm_90a" to its names. One argument, so that a problem's words may follow the option.
std::vector<std::string> names_of(const std::string& list);

/// The problem of a text: parse_problem(), or what options make of it (cli/parts/part.h).
using ReadText = std::function<Problem(const std::string&)>;

/// Arguments are words or quoted groups of words; each operation ("fwd") begins a new problem.
/// Words may have several values (sweep.h): then it is one problem for each combination. Throws
/// Error(kInvalidProblem) naming the bad word, else as `read`.
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

/// The one problem of verbs that take one. Throws Error(kInvalidArgument) for none or several.
Problem read_problem(const std::vector<std::string>& arguments, const std::string& verb,
                     const ReadText& read = parse_problem);

}  // namespace attnforge::cli
