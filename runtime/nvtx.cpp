// nvtx.cpp - NVTX ranges through its header-only implementation, which loads the profiler's library
// at the first range.
#include "runtime/nvtx.h"

#include <cstdlib>
#include <string>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define ATTNFORGE_HAS_NVTX 1
#else
#define ATTNFORGE_HAS_NVTX 0
#endif

namespace attnforge {

// Asked here and not by NVTX, so that a process without a profiler never enters its initialisation.
const bool kNvtxActive = ATTNFORGE_HAS_NVTX && secure_getenv("NVTX_INJECTION64_PATH") != nullptr;

#if ATTNFORGE_HAS_NVTX

void NvtxRange::push(const char* name, std::string_view detail) {
  if (detail.empty()) {
    nvtxRangePushA(name);
    return;
  }
  nvtxRangePushA((std::string(name) + ' ').append(detail).c_str());
}

void NvtxRange::pop() { nvtxRangePop(); }

#else

// Never reached: kNvtxActive is false.
void NvtxRange::push(const char*, std::string_view) {}
void NvtxRange::pop() {}

#endif

}  // namespace attnforge
