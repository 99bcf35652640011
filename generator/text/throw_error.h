// throw_error.h - an Error with a message from a format and values.
#pragma once

#include <fmt/core.h>

#include <utility>

#include "attnforge/error.h"

namespace attnforge {

template <class... Values>
[[noreturn]] void throw_error(ErrorCode code, fmt::format_string<Values...> format,
                              Values&&... values) {
  throw Error(code, fmt::format(format, std::forward<Values>(values)...));
}

}  // namespace attnforge
