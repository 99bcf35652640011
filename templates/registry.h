// registry.h - the list of kernel families, tier by tier, the best of each first.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "generator/family.h"

namespace attnforge {

std::span<const Family* const> registry();

/// nullptr when there is none of that name.
const Family* find_family(std::string_view name);

/// The family and what was searched, in its words: "fwd_mma_sm80 128 x 64 keys, 4 warps, ...". The
/// config's text where the family has no words of its own or does not know the fields.
std::string describe(const Config& config);

}  // namespace attnforge
