#include "templates/host/memory_time.h"

#include <cmath>
#include <cstdint>

#include "templates/host/fwd_params.h"

namespace attnforge {

bool has_few_rows(const Problem& problem) {
  constexpr std::int64_t kFew = 64;
  return problem.seqlen_q * gqa_group(problem) <= kFew;
}

double memory_us(const Problem& problem, const DeviceFacts& device) {
  constexpr double kReached = 0.92;  // of the peak
  const double bytes_per_us = 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8 * kReached;
  return bytes_per_us <= 0 ? 0 : minimum_bytes(problem) / bytes_per_us;
}

double with_memory_time(double us, const Problem& problem, const DeviceFacts& device) {
  constexpr double kSharp = 4;
  return std::pow(std::pow(us, kSharp) + std::pow(memory_us(problem, device), kSharp), 1 / kSharp);
}

}  // namespace attnforge
