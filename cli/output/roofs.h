// roofs.h - what a GPU's units reach at its highest clocks: the lines of a roofline. Pure.
#pragma once

#include <string>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"

namespace attnforge::cli {

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
