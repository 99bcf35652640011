#include "cli/output/roofs.h"

namespace attnforge::cli {

std::vector<Roof> roofs(const DeviceFacts& device, DType dtype) {
  // Dense fp16 or bf16 multiply-adds a clock of an SM of sm_90 by wgmma.
  constexpr double kWgmmaFma = 2048;
  const double tflops_of_fma = 2e-6 * device.num_sms * device.sm_clock_mhz;
  const Arch& arch = device.arch;
  std::vector<Roof> all;
  if (format_of(dtype).bits == 32) {
    all.push_back({"tensor cores, TF32", arch.mma_fma_per_clock_per_sm / 2.0 * tflops_of_fma});
  } else {
    if (arch.wgmma) all.push_back({"tensor cores, wgmma", kWgmmaFma * tflops_of_fma});
    all.push_back({"tensor cores, mma.sync", arch.mma_fma_per_clock_per_sm * tflops_of_fma});
  }
  all.push_back({"CUDA cores, fp32", arch.fp32_fma_per_clock_per_sm * tflops_of_fma});
  return all;
}

double memory_gb_per_s(const DeviceFacts& device) {
  // Two transfers a clock.
  return 2e-3 / 8 * device.memory_clock_mhz * device.memory_bus_bits;
}

const DeviceFacts* gpu_named(const std::string& name) {
  for (const std::string_view arch : known_archs()) {
    const DeviceFacts& device = typical_device(arch);
    if (device.name == name) return &device;
  }
  return nullptr;
}

}  // namespace attnforge::cli
