// host.h - the user's texts in the generated entry, and their arguments (docs/USER_CODE.md).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/user_code/pair_terms.h"

namespace attnforge {

class Argument;  // templates/host/argument.h

/// Words of CodeParams: one for each argument and each of dargs, made even, at least 2.
std::size_t code_words(const Problem& problem);

/// The words that a run has for them.
OwnArgument code_argument(const Problem& problem);

/// The member of an argument that has them: the argument's type, of `params` without it, its bytes,
/// and itself.
std::string with_code_params(const Problem& problem, std::string_view params);
std::size_t code_params_bytes(const Problem& problem);
void add_code_params(Argument& argument, const Problem& problem);

/// The struct UserCode of an entry, whose functions are the score's text and `mask`: what windows
/// leave of the mask's text (mask_code()), or all of it. With `terms` they are functions, too, for
/// parts/user_code/terms.cuh. `slopes`: KernelTraits::slopes.
std::string struct_of_code(const Problem& problem, std::string_view mask,
                           const PairTerms* terms = nullptr, bool slopes = false);

}  // namespace attnforge
