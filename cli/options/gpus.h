// gpus.h - which GPU a verb works on, what its units reach, and how the library's log reaches
// standard error.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge::cli {

/// "0", "3" or "all" to CUDA ordinals. "all" without any GPU is {0}, so that opening it says what
/// is missing. Throws Error(kInvalidArgument).
std::vector<int> gpu_ordinals(const std::string& text);

/// Opens a GPU, whose log goes to `write`, a line a message. Where there is none, the error says
/// what works without.
Device open_gpu(int ordinal, const std::string& cache_path,
                std::function<void(std::string_view)> write, std::string_view without);

/// Whether a small allocation still works: what failed then was one problem, too large as a rule,
/// and not the GPU.
bool gpu_works(Device& device);

/// "GPU 0, NVIDIA H200" or "NVIDIA GeForce RTX 3090 (sm_86, not present)".
std::string describe(const DeviceFacts& device);

/// "NVIDIA H200" of the database's "NVIDIA H200 sm_90a sms=132 ...".
std::string gpu_of_class(const std::string& device_class);

/// What a GPU's units reach at its highest clocks: a line of a roofline.
struct Roof {
  std::string name;  // "tensor cores, wgmma"
  double tflops_per_s = 0;
};

/// Roofs of the units that multiply `dtype`, the fastest first. Never empty.
std::vector<Roof> roofs(const DeviceFacts& device, DType dtype);

/// 1e9 bytes per second.
double memory_gb_per_s(const DeviceFacts& device);

/// A GPU that is known by its name, though it need not be here; nullptr for others.
const DeviceFacts* gpu_named(const std::string& name);

}  // namespace attnforge::cli
