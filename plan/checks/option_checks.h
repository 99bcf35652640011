// option_checks.h - numbers of options, before anything is done with them.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "attnforge/error.h"

namespace attnforge {

/// Throws Error(kInvalidArgument) for NaN and for less than 0. Infinity is as good as no limit.
inline void require_seconds(std::string_view name, double value) {
  if (value >= 0) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}={} must be a number of seconds, at least 0", name, value));
}

/// Throws Error(kInvalidArgument) outside of `least` to `most`.
inline void require_count(std::string_view name, int value, int least, int most) {
  if (least <= value && value <= most) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}={} must be from {} to {}", name, value, least, most));
}

}  // namespace attnforge
