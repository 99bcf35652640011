#include "cli/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

constexpr double kGiB = 1 << 30;

/// MemAvailable: free memory, and what the system would give back for it.
double available_in_system() {
  std::ifstream file("/proc/meminfo");
  std::string name, unit;
  for (double kib = 0; file >> name >> kib; std::getline(file, unit)) {
    if (name == "MemAvailable:") return kib * 1024;
  }
  return 0;
}

/// "max" is no limit and not a number.
double limit_of_group() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  double bytes = 0;
  return file >> bytes ? bytes : 0;
}

[[noreturn]] void refuse(const char* memory, const char* has, double bytes, double available) {
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("its tensors take {:.1f} GiB of {} memory, and {} {:.1f} GiB; use a smaller "
                  "problem",
                  bytes / kGiB, memory, has, available / kGiB));
}

}  // namespace

double available_host_bytes() {
  const double system = available_in_system(), group = limit_of_group();
  return system > 0 && group > 0 ? std::min(system, group) : std::max(system, group);
}

void require_host_memory(const Problem& problem, double available) {
  const double bytes = minimum_bytes(problem);
  if (available > 0 && bytes > available) refuse("host", "there are", bytes, available);
}

void require_gpu_memory(const Problem& problem, const DeviceFacts& device) {
  const double bytes = minimum_bytes(problem);
  const auto available = static_cast<double>(device.memory_bytes);
  if (available > 0 && bytes > available) refuse("GPU", "the GPU has", bytes, available);
}

}  // namespace attnforge::cli
