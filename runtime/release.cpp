#include "runtime/release.h"

#include <atomic>

#include "attnforge/error.h"

namespace attnforge {
namespace {

std::atomic<bool> left = false;

}  // namespace

void leave_to_end_of_process() { left = true; }
bool left_to_end_of_process() { return left; }

void require_kernels_to_end() {
  if (left)
    throw Error(
        ErrorCode::kCuda,
        "a kernel of this process has no end, so nothing more can run in it: end the process");
}

}  // namespace attnforge
