// gpus.h - which GPU a verb works on, and how the library's log reaches standard error.
#pragma once

#include <string>
#include <vector>

#include "attnforge/device.h"

namespace attnforge::cli {

/// "0", "3" or "all" to CUDA ordinals. "all" without any GPU is {0}, so that opening it says what
/// is missing. Throws Error(kInvalidArgument).
std::vector<int> gpu_ordinals(const std::string& text);

/// Whether a small allocation still works: what failed then was one problem, too large as a rule,
/// and not the GPU.
bool gpu_works(Device& device);

/// "GPU 0, NVIDIA H200" or "NVIDIA GeForce RTX 3090 (sm_86, not present)".
std::string describe(const DeviceFacts& device);

/// "NVIDIA H200" of the database's "NVIDIA H200 sm_90a sms=132 ...".
std::string gpu_of_class(const std::string& device_class);

/// A line a message on standard error: "attnforge: warning: ...".
LogFunction log_to_stderr();
std::string log_line(LogLevel level, std::string_view message);

}  // namespace attnforge::cli
