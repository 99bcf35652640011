// code_inputs.h - inputs of user code for fuzzers: three texts in one, those that are ready-made
// and others that are meant to leave their place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnforge/code_texts.h"
#include "tests/fuzz/mutate.h"

namespace attnforge::fuzz {

/// score, mask and args with this byte between them, which none of them may have.
inline constexpr char kBetweenTexts = '\x1e';

std::string input_of(const CodeTexts& texts);
/// What is missing is "", what is more belongs to the last.
CodeTexts texts_of(std::string_view input);

/// Inputs that are right.
std::vector<std::string> right_code_inputs();
/// And that are not.
std::vector<std::string> wrong_code_inputs();

/// A right text after one to four changes that keep it an expression as a rule: names, numbers and
/// operators by others of their kind, all of it in brackets of a function. What is in square
/// brackets stays.
CodeTexts other_code(CodeTexts texts, Random& random);

/// Words of expressions; `hostile`: and what would end or escape one.
std::vector<std::string> code_words(bool hostile);

}  // namespace attnforge::fuzz
