// release.h - giving back what the driver has made, and when that is left to the end of the
// process.
#pragma once

#include <atomic>

#include "attnforge/error.h"
#include "runtime/driver.h"

namespace attnforge {

/// Then release() does nothing, in the whole process: a kernel has no end, and the driver waits for
/// it before it frees memory or code.
inline std::atomic<bool> left_to_end_of_process = false;

/// Before what would wait for the kernel, too. Throws Error(kCuda).
inline void require_kernels_to_end() {
  if (left_to_end_of_process)
    throw Error(
        ErrorCode::kCuda,
        "a kernel of this process has no end, so nothing more can run in it: end the process");
}

/// For destructors: runs `give_back`(driver). Failures (a lost context, a driver that is shutting
/// down) cannot be helped, nor does it throw. What a parent made stays as it is.
template <class GiveBack>
void release(const GiveBack& give_back) {
  if (!left_to_end_of_process && !driver_of_a_parent()) give_back(driver());
}

}  // namespace attnforge
