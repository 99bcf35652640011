// code_errors.h - the errors of a compile that are in the user's texts. Pure: text in, text out.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace attnforge {

/// The errors of a failed compile in the user's texts of score and mask, each with its line and
/// column there and the line with a caret below: "" if there are none.
///   score, line 1, column 5: identifier "slop" is undefined
///     s + slop * 2.0f
///         ^
std::string errors_in_code(std::string_view log, std::size_t max_bytes);

}  // namespace attnforge
