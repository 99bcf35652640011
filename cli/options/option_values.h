// option_values.h - what the values of options may be, said in the terms of the option.
#pragma once

#include <cstdint>
#include <limits>

#include "cli/options/command_line.h"

namespace attnforge::cli {

inline constexpr std::uint64_t kMostInt = std::numeric_limits<int>::max();
inline constexpr std::uint64_t kMostUnsigned = std::numeric_limits<unsigned>::max();
inline constexpr std::uint64_t kMostSamples = 1'000'000;  // of measure()

/// A decimal number without a sign. The value is rewritten without leading
/// zeros, which would make it octal: for Option::transform.
ValueRule whole_number(std::uint64_t least, std::uint64_t most);

/// A number of seconds from 0 to 1e9: neither NaN nor infinity.
ValueRule seconds();

/// At least one name between commas.
ValueRule names();

}  // namespace attnforge::cli
