// code_inputs.h - inputs of user code for fuzzers: three texts in one, those that are ready-made
// and others that are meant to leave their place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnforge/code_texts.h"

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

/// Words of expressions; `hostile`: and what would end or escape one.
std::vector<std::string> code_words(bool hostile);

}  // namespace attnforge::fuzz
