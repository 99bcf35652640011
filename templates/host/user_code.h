// user_code.h - the user's texts as lines of the generated entry, and their arguments as a part of
// the kernel's (code_part() in templates/host/parts.h). docs/USER_CODE.md.
#pragma once

#include <cstddef>

#include "attnforge/problem.h"

namespace attnforge {

/// Words of CodeParams: one for each argument, made even, at least 2.
std::size_t code_words(const Problem& problem);

}  // namespace attnforge
