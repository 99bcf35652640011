#include "templates/host/memory_time.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/problem/bucket.h"
#include "templates/host/fwd_params.h"

namespace attnforge {

bool has_few_rows(const Problem& problem) {
  constexpr std::int64_t kFew = 128;
  return problem.seqlen_q * gqa_group(problem) <= kFew;
}

double peak_bytes_per_us(const DeviceFacts& device) {
  return 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8;
}

double memory_us(const Problem& problem, const DeviceFacts& device) {
  constexpr double kReached = 0.92;  // of the peak
  const double bytes_per_us = peak_bytes_per_us(device) * kReached;
  return bytes_per_us <= 0 ? 0 : minimum_bytes(problem) / bytes_per_us;
}

double reads_us(const Problem& problem, int pack_gqa, const DeviceFacts& device) {
  constexpr double kL2Rate = 1.2;  // of the memory's: 28 to 71 heads of a group on an H200
  const double times = double(gqa_group(problem)) / pack_gqa;
  return times > 1 ? memory_us(problem, device) * times / kL2Rate : 0;
}

double with_memory_time(double us, const Problem& problem, const DeviceFacts& device,
                        double rounds) {
  constexpr double kSharp = 4;
  return std::pow(std::pow(us, kSharp) + std::pow(memory_us(problem, device) * rounds, kSharp),
                  1 / kSharp);
}

double late_readers(double blocks, const DeviceFacts& device) {
  constexpr double kLeast = 1.0 / 3;  // of a round, however few blocks it has
  const double rounds = blocks / std::max(device.num_sms, 1), whole = std::floor(rounds);
  if (rounds <= 1 || rounds == whole) return 1;
  return (whole + std::max(rounds - whole, kLeast)) / rounds;
}

double late_readers(const Problem& problem, double blocks, const DeviceFacts& device) {
  if (problem.batch_invariant || !has_few_rows(problem)) return late_readers(blocks, device);
  double sum = 0;
  std::int64_t batches = 0;
  for (std::int64_t batch = problem.batch; batch > 0 && bucket_batch(batch) == problem.batch;
       --batch, ++batches)
    sum += late_readers(blocks * double(batch) / double(problem.batch), device);
  return batches == 0 ? late_readers(blocks, device) : sum / double(batches);
}

double spread_of_batches(const Problem& problem, double blocks, const DeviceFacts& device) {
  if (problem.lengths != Lengths::kFixed) return 1;
  return late_readers(problem, blocks, device) / late_readers(blocks, device);
}

}  // namespace attnforge
