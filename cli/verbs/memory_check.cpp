#include "cli/verbs/memory_check.h"

#include <algorithm>
#include <exception>
#include <fstream>
#include <new>

#include "attnforge/check.h"
#include "cli/refuse.h"

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

/// 0 available: unknown.
void require(const char* what, double bytes, const char* memory, const char* has,
             double available) {
  if (available <= 0 || bytes <= available) return;
  refuse(kUnsupported, "{} take {:.1f} GiB of {} memory, and {} {:.1f} GiB; use a smaller problem",
         what, bytes / kGiB, memory, has, available / kGiB);
}

}  // namespace

double available_host_bytes() {
  const double system = available_in_system(), group = limit_of_group();
  return system > 0 && group > 0 ? std::min(system, group) : std::max(system, group);
}

void require_host_bytes(const char* what, double bytes, double available) {
  require(what, bytes, "host", "there are", available);
}

std::string no_host_memory() {
  return fmt::format("there is not enough host memory ({:.1f} GiB are available)",
                     available_host_bytes() / kGiB);
}

void note_failure(std::string& error, ErrorCode& code, const char* advice) {
  try {
    throw;
  } catch (const Error& caught) {
    error = caught.what();
    code = caught.code();
  } catch (const std::bad_alloc&) {
    error = fmt::format("{}; {}", no_host_memory(), advice);
    code = kUnsupported;
  } catch (const std::exception& caught) {
    error = caught.what();
    code = kInternal;
  }
}

void require_host_memory(const Problem& problem, double available) {
  require_host_bytes("its tensors", minimum_bytes(problem), available);
}

void require_reference_memory(const Problem& problem, double available) {
  require_host_bytes("its tensors, and the reference in fp64,",
                     minimum_bytes(problem) + solve_on_cpu_bytes(problem), available);
}

void require_gpu_memory(const Problem& problem, const DeviceFacts& device) {
  require("its tensors", minimum_bytes(problem), "GPU", "the GPU has",
          static_cast<double>(device.memory_bytes));
}

}  // namespace attnforge::cli
