// checksum.h - XXH3-128, of bytes and of the columns of a row.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "cache/file/database.h"

namespace attnforge {

/// 32 hexadecimal digits.
std::string checksum(std::span<const std::byte> bytes);

/// Makes `checksum(column, ...)` known to SQL: that of the texts of its arguments, which cannot run
/// together. A row keeps that of its own key and facts, so that a row that an index gives by
/// mistake, or whose columns were damaged, is not taken for the row that was looked up.
void add_checksum_function(Database& database);

}  // namespace attnforge
