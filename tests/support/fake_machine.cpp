// fake_machine.cpp - points the program that it is linked into at the fake NVRTC, and where asked
// at a fake GPU that can be tuned on, before anything looks.
#include <cstdlib>

namespace {

[[maybe_unused]] const bool set = [] {
#ifdef ATTNFORGE_FAKE_GPU_LAUNCH_US
  setenv("FAKE_GPU_LAUNCH_US", ATTNFORGE_FAKE_GPU_LAUNCH_US, 1);
  setenv("ATTNFORGE_WORKER", "in_process", 1);
#else
  setenv("ATTNFORGE_WORKER", "none", 1);
#endif
  return setenv("ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC, 1) == 0;
}();

}  // namespace
