// utf8.h - the parts of a text that are well-formed UTF-8.
#pragma once

#include <cstddef>
#include <string_view>

namespace attnforge {

/// Length of the well-formed UTF-8 sequence at `at`, 0 if there is none or it is a zero byte.
/// Neither overlong forms nor surrogates are well-formed (Unicode standard, table 3-7).
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace attnforge
