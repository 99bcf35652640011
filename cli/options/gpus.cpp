#include "cli/options/gpus.h"

#include "attnforge/device_memory.h"
#include "attnforge/printable.h"
#include "cli/options/command_line.h"
#include "cli/refuse.h"

namespace attnforge::cli {

std::vector<int> gpu_ordinals(const std::string& text) {
  if (text == "all") {
    std::vector<int> ordinals;
    for (const DeviceFacts& device : enumerate_devices()) ordinals.push_back(device.ordinal);
    if (ordinals.empty()) ordinals.push_back(0);
    return ordinals;
  }
  const std::optional<int> ordinal = number_in<int>(text);
  if (ordinal && *ordinal >= 0) return {*ordinal};
  refuse(kInvalidArgument,
         "--gpu must be the number of a GPU (see attnforge list devices) or all, not \"{}\"", text);
}

Device open_gpu(int ordinal, const std::string& cache_path,
                std::function<void(std::string_view)> write, std::string_view without) {
  const LogFunction log = [write = std::move(write)](LogLevel level, std::string_view message) {
    const char* word = level == LogLevel::kError     ? "error: "
                       : level == LogLevel::kWarning ? "warning: "
                       : level == LogLevel::kDebug   ? "debug: "
                                                     : "";
    write(fmt::format("attnforge: {}{}", word, message));
  };
  try {
    return Device({.ordinal = ordinal, .cache_path = cache_path, .log = log});
  } catch (const Error& error) {
    if (error.code() != kNoDriver) throw;
    refuse(kNoDriver, "{}\nWithout a GPU, {}", error.what(), without);
  }
}

bool gpu_works(Device& device) {
  try {
    DeviceBuffer(device, 256).fill(0);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string describe(const DeviceFacts& device) {
  if (device.ordinal >= 0) return fmt::format("GPU {}, {}", device.ordinal, printable(device.name));
  return fmt::format("{} (sm_{}, not present)", device.name, device.arch.name);
}

std::string gpu_of_class(const std::string& device_class) {
  return device_class.substr(0, device_class.find(" sm"));
}

std::vector<Roof> roofs(const DeviceFacts& device, DType dtype) {
  // Dense multiply-adds a clock of an SM of sm_90 by wgmma.
  const double wgmma_fma = 2048 * 16.0 / format_of(dtype).bits;
  const double tflops_of_fma = 2e-6 * device.num_sms * device.sm_clock_mhz;
  const Arch& arch = device.arch;
  std::vector<Roof> all;
  if (format_of(dtype).bits == 32) {
    all.push_back({"tensor cores, TF32", arch.mma_fma_per_clock_per_sm / 2.0 * tflops_of_fma});
  } else {
    if (arch.wgmma) all.push_back({"tensor cores, wgmma", wgmma_fma * tflops_of_fma});
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
