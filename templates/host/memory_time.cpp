#include "templates/host/memory_time.h"

#include <cmath>
#include <cstdint>

#include "templates/host/fwd_params.h"

namespace attnforge {

bool has_few_rows(const Problem& problem) {
  constexpr std::int64_t kFew = 128;
  return problem.seqlen_q * gqa_group(problem) <= kFew;
}

double memory_us(const Problem& problem, const DeviceFacts& device) {
  constexpr double kReached = 0.92;  // of the peak
  const double bytes_per_us = 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8 * kReached;
  return bytes_per_us <= 0 ? 0 : minimum_bytes(problem) / bytes_per_us;
}

double reads_us(const Problem& problem, int pack_gqa, const DeviceFacts& device) {
  constexpr double kL2Rate = 1.2;  // of the memory's: 28 to 71 heads of a group on an H200
  const double times = double(gqa_group(problem)) / pack_gqa;
  return times > 1 ? memory_us(problem, device) * times / kL2Rate : 0;
}

double with_memory_time(double us, const Problem& problem, const DeviceFacts& device) {
  constexpr double kSharp = 4;
  return std::pow(std::pow(us, kSharp) + std::pow(memory_us(problem, device), kSharp), 1 / kSharp);
}

}  // namespace attnforge
