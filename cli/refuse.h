// refuse.h - how the program says that something cannot be: a code and a formatted sentence.
#pragma once

#include <fmt/format.h>

#include <utility>

#include "attnforge/error.h"

namespace attnforge::cli {

using enum ErrorCode;

/// Throws Error.
template <class... Values>
[[noreturn]] void refuse(ErrorCode code, fmt::format_string<Values...> text, Values&&... values) {
  throw Error(code, fmt::format(text, std::forward<Values>(values)...));
}

}  // namespace attnforge::cli
