// fake_gpu.h - the memory, events and time of the fake driver, for those who ask for them: with
// $FAKE_GPU_LAUNCH_US set it can be tuned on, and each launch takes so long.
#pragma once

#include <cuda.h>

#include <string_view>

namespace attnforge::test {

struct FakeEntry {
  std::string_view name;
  void* function;
};
template <class Function>
FakeEntry fake_entry(std::string_view name, Function function) {
  return {name, reinterpret_cast<void*>(function)};
}

/// What answers to `name`; nullptr: nothing here does, or $FAKE_GPU_LAUNCH_US is not set.
void* fake_gpu_function(std::string_view name);

/// How long a kernel takes on the GPU's clock: from 50 to 100 us, by its code (up to the first
/// zero) alone, so that every process finds the same config to be the fastest.
double fake_gpu_duration_us(std::string_view code);

/// For calls that wait for kernels: ends the process with kFakeGpuWaits if one of them has no end,
/// as launch number $FAKE_GPU_HANGS_AT has none.
void fake_gpu_wait();
inline constexpr int kFakeGpuWaits = 97;

/// The fault that code has from the fake NVRTC; "": none. "load_crash" ends the process when it is
/// loaded, the others when it is launched: "crash" ends the process, "stuck" never returns, "hang"
/// is a kernel without end, "illegal" breaks the context, "memory" is a launch that fails.
std::string_view fake_gpu_fault(std::string_view code);

/// A launch: sleeps, and moves the GPU's clock by `duration_us`. Does nothing unless
/// $FAKE_GPU_LAUNCH_US is set.
CUresult fake_gpu_launch(double duration_us, std::string_view fault);

}  // namespace attnforge::test
