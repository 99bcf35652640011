// code_names.h - words that texts of the user's cannot have, and names that arguments cannot have.
#pragma once

#include <string_view>

namespace attnforge {

/// "" or why a text cannot have the word: "is the compiler's, ...".
std::string_view why_no_word(std::string_view word);

/// "" or why no argument can have the name: it means something where texts are compiled.
std::string_view why_no_argument(std::string_view name);

}  // namespace attnforge
