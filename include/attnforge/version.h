// version.h - the version of attnforge.
#pragma once

#include "attnforge/cxx20.h"

#define ATTNFORGE_VERSION_MAJOR 0
#define ATTNFORGE_VERSION_MINOR 1
#define ATTNFORGE_VERSION_PATCH 0

namespace attnforge {
inline constexpr const char* kVersion = "0.1.0";
}  // namespace attnforge
