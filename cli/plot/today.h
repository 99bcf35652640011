// today.h - the date and time of pictures and sweeps.
#pragma once

#include <string>

namespace attnforge::cli {

/// ISO 8601, UTC: "2026-01-31T12:34:56Z", and the day alone.
std::string utc_now();
std::string utc_date();

}  // namespace attnforge::cli
