// worker.h - the side of a search that tries kernels, as the program attnforge has it: a process
// that a search starts, since a kernel that was never tried may fault or hang.
#pragma once

#include <string_view>

#include "attnforge/cxx20.h"

namespace attnforge {

/// What `attnforge worker ROLE SUPERVISOR` does: answers a search of the process `supervisor` over
/// standard input, a socket, until that is closed. `role`: "gpu" or "compile". Returns an exit
/// code, with which the process should end at once (std::_Exit). Never throws.
ATTNFORGE_API int serve_search(std::string_view role, int supervisor);

}  // namespace attnforge
