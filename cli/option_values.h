// option_values.h - what the values of options may be, said in the terms of the option.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>

namespace attnforge::cli {

inline constexpr std::uint64_t kMostInt = std::numeric_limits<int>::max();
inline constexpr std::uint64_t kMostUnsigned = std::numeric_limits<unsigned>::max();
inline constexpr std::uint64_t kMostSamples = 1'000'000;  // of measure()

/// For Option::transform: a decimal number without a sign. The value is rewritten without leading
/// zeros, which would make it octal.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

/// A number of seconds from 0 to 1e9: neither NaN nor infinity.
CLI::Validator seconds();

/// At least one name between commas.
CLI::Validator names();

/// Every option of `verb` and of its subcommands that takes a value refuses "".
void refuse_empty_values(CLI::App& verb);

}  // namespace attnforge::cli
