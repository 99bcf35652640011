// quoted_words.h - the words of a problem's text as a command line, a sweep or a file has it:
// blanks between double quotes do not end one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnforge::cli {

/// Quotes are part of a word. Between them a backslash takes its meaning from the character after
/// it.
std::vector<std::string> split_words(std::string_view text);

/// name="content", with its quotes and backslashes escaped. `name` ends in =.
std::string quoted_word(std::string_view name, std::string_view content);

/// The words of the arguments of a program. A shell has taken the quotes off an argument such as
/// score="s * 2", so one that begins with score=, mask= or args= and does not go on with a quote is
/// one word, and gets them back.
std::vector<std::string> words_of(const std::vector<std::string>& arguments);

}  // namespace attnforge::cli
