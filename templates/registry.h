// registry.h - the list of kernel families, tier by tier, the best of each first. registry.cpp is
// the only file that names them all.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "generator/family.h"

namespace attnforge {

std::span<const Family* const> registry();

/// nullptr when there is none of that name.
const Family* find_family(std::string_view name);

/// The config of a text from a database, a table or a script: as parse_config(), after
/// update_words(). Throws Error(kInvalidArgument) as that does, and for a value of a former field
/// that is not made any more.
Config read_config(std::string_view text);

/// The family and what was searched, in its words: "fwd_mma_sm80 128 x 64 keys, 4 warps, ...". The
/// config's text where the family has no words of its own or does not know the fields.
std::string describe(const Config& config);

}  // namespace attnforge
