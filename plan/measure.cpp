#include "attnforge/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "attnforge/device_memory.h"
#include "attnforge/error.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "runtime/memory.h"

namespace attnforge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Clocks rise from idle within about this time of work.
constexpr double kWarmUpSeconds = 0.1;

/// The value that `part` of the sorted samples are below, interpolated.
double quantile(const std::vector<double>& sorted, double part) {
  const double at = part * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

BenchResult result_of(std::vector<double> samples, const Problem& problem) {
  std::sort(samples.begin(), samples.end());
  BenchResult result;
  result.samples = static_cast<int>(samples.size());
  result.time_us = quantile(samples, 0.5);
  result.min_us = samples.front();
  if (result.time_us <= 0) return result;
  result.noise = (quantile(samples, 0.75) - quantile(samples, 0.25)) / result.time_us;
  result.tflops_per_s = flops(problem) / result.time_us * 1e-6;
  result.gbytes_per_s = minimum_bytes(problem) / result.time_us * 1e-3;
  const double token_heads = static_cast<double>(problem.batch) * static_cast<double>(problem.seqlen_q) *
                             static_cast<double>(problem.num_heads_q);
  if (token_heads > 0) result.ns_per_token_head = result.time_us * 1e3 / token_heads;
  return result;
}

}  // namespace

BenchResult measure(const Plan& plan, Device& device, const Tensors& tensors, void* workspace,
                    const MeasureOptions& options) {
  if (options.min_samples < 1 || options.max_samples < options.min_samples) {
    throw Error(ErrorCode::kInvalidArgument,
                "measure needs at least one sample, and max_samples not below min_samples");
  }
  const ContextScope scope(device.state().context);
  // Twice the cache: what is left of the tensors in it is negligible. It also keeps the GPU busy while the host enqueues
  // the run behind it, so that no launch latency is measured.
  constexpr std::int64_t kLeastFlushBytes = 32 << 20;
  Buffer flush(static_cast<std::size_t>(std::max(2 * device.facts().l2_bytes, kLeastFlushBytes)));
  Event start, stop;
  const auto sample_us = [&] {
    if (options.cold_l2) flush.fill8(0);
    start.record(nullptr);
    plan.run(tensors, workspace);
    stop.record(nullptr);
    stop.synchronize();
    return elapsed_us(start, stop);
  };

  const auto warm_up = Clock::now();
  do sample_us();
  while (seconds_since(warm_up) < kWarmUpSeconds);

  std::vector<double> samples;
  const auto began = Clock::now();
  while (static_cast<int>(samples.size()) < options.min_samples ||
         (static_cast<int>(samples.size()) < options.max_samples && seconds_since(began) < options.time_limit_s)) {
    samples.push_back(sample_us());
  }
  return result_of(std::move(samples), plan.problem());
}

BenchResult measure(const Plan& plan, Device& device, const MeasureOptions& options) {
  const HostTensors host = random_host_tensors(plan.problem(), options.seed);
  const DeviceTensors on_gpu = upload_tensors(device, plan, host);
  return measure(plan, device, on_gpu.tensors, on_gpu.workspace.data(), options);
}

}  // namespace attnforge
