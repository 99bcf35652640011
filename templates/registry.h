// registry.h - the list of kernel families, tier by tier, the best of each first. registry.cpp is
// the only file that names them all.
#pragma once

#include <span>

#include "generator/family.h"

namespace attnforge {

std::span<const Family* const> registry();

/// nullptr when there is none of that name.
const Family* find_family(std::string_view name);

}  // namespace attnforge
