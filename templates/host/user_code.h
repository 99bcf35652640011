// user_code.h - the user's texts as lines of the generated entry, and their arguments as a part of
// the kernel's. docs/USER_CODE.md.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "attnforge/problem.h"
#include "templates/host/argument.h"
#include "templates/host/kernel_source.h"

namespace attnforge {

struct TileWork;  // templates/host/work_list.h

/// Words of CodeParams: one for each argument, made even, at least 2.
std::size_t code_words(const Problem& problem);

// A row of the table of parts (templates/host/parts.h).

/// "WithCode<Params, 2>".
std::string code_params_type(const Problem& problem, std::string_view params);
void add_code_params(Argument& argument, const Problem& problem, const TileWork& work);
/// The struct UserCode of the entry, whose functions are the texts, and the pieces that call them.
void extend_by_code(KernelNames& names, const Problem& problem);

}  // namespace attnforge
