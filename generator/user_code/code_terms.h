// code_terms.h - what && joins in a text of the user's C++.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "generator/user_code/code_tokens.h"

namespace attnforge {

/// Some of the tokens of a text.
using Code = std::span<const CodeToken>;

/// Whether an operator of two characters begins at token i.
bool touch(Code tokens, std::size_t i, std::string_view first, std::string_view second);

/// Whether a text may change what it names: then its terms mean nothing by themselves.
bool may_assign(Code tokens);

/// What && joins, in the text's order and without brackets around it; one term where something
/// binds less tightly.
std::vector<Code> terms_of(Code tokens);

}  // namespace attnforge
