// overrides.h - what the environment forces. The only reader of those variables:
// docs/ENVIRONMENT.md.
#pragma once

#include <string>

#include "generator/overrides.h"

namespace attnforge {

/// What the environment forces: $ATTNFORGE_FAMILY, _BLOCK_N, _SMEM_BYTES, _TEMPLATES, _KERNEL_NAME,
/// _PRINT_LAUNCH and _CHECK_INPUTS; unset and empty ones force nothing. Reads the files of
/// ATTNFORGE_TEMPLATES. Throws Error(kInvalidArgument) naming the variable, its value and what is
/// allowed, Error(kIo) for a header that cannot be read. Checks $ATTNFORGE_LOG, _CACHE_WAL and
/// _CACHE_TRUST too.
Overrides overrides_from_environment();

/// $ATTNFORGE_FAMILY alone, unchecked: cheap.
std::string family_from_environment();

}  // namespace attnforge
