// utc.h - the time of day as rows of the database have it.
#pragma once

#include <string>

namespace attnforge {

/// ISO 8601, UTC, now: "2025-03-14T09:26:53Z". Texts in their order are times in theirs.
std::string utc_now();

}  // namespace attnforge
