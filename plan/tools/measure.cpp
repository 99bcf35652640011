#include "attnforge/measure.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "attnforge/device_memory.h"
#include "attnforge/error.h"
#include "generator/tensors/operands.h"
#include "plan/checks/option_checks.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "reference/sequences.h"
#include "runtime/driver.h"
#include "runtime/release.h"
#include "tuner/search/stopping.h"
#include "tuner/timer.h"

namespace attnforge {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Clocks rise from idle within about this time of work.
constexpr double kWarmUpSeconds = 0.1;
/// Far more than any batch of samples takes.
constexpr double kHangsSeconds = 600;
constexpr int kBatch = 16;
constexpr int kMostSamples = 1'000'000;

/// Bytes of k and v.
double cache_bytes(const Problem& p) {
  const double bytes_of_key = bytes_of(p.dtype_k, double(p.head_dim)) +
                              bytes_of(p.dtype_v, double(p.head_dim_v));
  return double(p.batch) * double(p.seqlen_kv) * double(p.num_heads_kv) * bytes_of_key;
}

BenchResult result_of(const std::vector<double>& samples, const Problem& problem,
                      const Work& work) {
  BenchResult result;
  result.samples = static_cast<int>(samples.size());
  result.time_us = median(samples);
  result.min_us = *std::min_element(samples.begin(), samples.end());
  result.noise = relative_iqr(samples);
  if (!(result.time_us > 0)) return result;
  result.tflops_per_s = work.tflops_per_s(result.time_us);
  result.work_unknown = work.unknown;
  if (all_full(problem)) result.cache_tb_per_s = cache_bytes(problem) / result.time_us * 1e-6;
  result.gbytes_per_s = minimum_bytes(problem) / result.time_us * 1e-3;
  const double token_heads = static_cast<double>(total_tokens(problem).q * problem.num_heads_q);
  if (token_heads > 0) result.ns_per_token_head = result.time_us * 1e3 / token_heads;
  return result;
}

/// Free bytes of the GPU, when all that was enqueued is over.
std::int64_t free_bytes(Device& device) {
  const ContextScope scope(state_of(device).context);
  std::size_t free = 0, total = 0;
  check(driver().cuCtxSynchronize(), "wait for a kernel");
  check(driver().cuMemGetInfo(&free, &total), "ask for free device memory");
  return static_cast<std::int64_t>(free);
}

MemoryUse memory_of(const DeviceTensors& tensors, const Plan& plan) {
  const std::vector<Operand> list = operands(plan.problem());
  MemoryUse use;
  for (std::size_t i = 0; i < list.size(); ++i) {
    (list[i].role == Operand::Role::kOutput
         ? use.outputs
         : use.inputs) += static_cast<std::int64_t>(tensors.buffers[i].size_bytes());
  }
  use.workspace = static_cast<std::int64_t>(tensors.workspace.size_bytes());
  use.peak = use.inputs + use.outputs + use.workspace;
  return use;
}

}  // namespace

namespace {

/// The times of a run that does this `work`.
BenchResult measured(const Plan& plan, Device& device, const Tensors& tensors, void* workspace,
                     const MeasureOptions& options, const Work& work) {
  require_count("min_samples", options.min_samples, 1, kMostSamples);
  require_count("max_samples", options.max_samples, options.min_samples, kMostSamples);
  require_seconds("time_limit_s", options.time_limit_s);
  const ContextScope scope(state_of(device).context);
  const Instruments instruments(device.facts().arch);
  Timer timer(device.facts(), instruments);
  std::vector<double> samples;
  const auto sample = [&](int count) {
    const auto enqueue = [&](std::size_t) {
      plan.run(tensors, workspace, timer.stream());
      return true;
    };
    const Timer::Samples taken = timer.sample(static_cast<std::size_t>(count), enqueue,
                                              kHangsSeconds);
    if (taken.timed_out) {
      left_to_end_of_process = true;
      throw Error(ErrorCode::kCuda, plan.config() + " did not finish; the GPU hangs in it");
    }
    samples.insert(samples.end(), taken.time_us.begin(), taken.time_us.end());
  };

  const auto warm_up = Clock::now();
  do sample(1);
  while (seconds_since(warm_up) < kWarmUpSeconds);

  samples.clear();
  const auto began = Clock::now();
  const auto goes_on = [&](int taken) {
    if (taken == 0) return true;
    if (options.cancelled && options.cancelled()) return false;
    return taken < options.min_samples ||
           (taken < options.max_samples && seconds_since(began) < options.time_limit_s);
  };
  for (int taken = 0; goes_on(taken); taken = static_cast<int>(samples.size()))
    sample(std::min(
        kBatch, (taken < options.min_samples ? options.min_samples : options.max_samples) - taken));
  BenchResult result = result_of(samples, plan.problem(), work);
  result.clock_mhz = timer.clock_mhz();
  return result;
}

}  // namespace

BenchResult measure(const Plan& plan, Device& device, const Tensors& tensors, void* workspace,
                    const MeasureOptions& options) {
  return measured(plan, device, tensors, workspace, options, work_of(plan.problem()));
}

BenchResult measure(const Plan& plan, Device& device, const MeasureOptions& options) {
  const HostTensors host = random_host_tensors(plan.problem(), options.seed);
  const std::int64_t free_before = free_bytes(device);
  const DeviceTensors on_gpu = upload_tensors(device, plan, host);
  // One run before the timer has buffers of its own: what the driver adds for a kernel's local
  // memory comes with the first launch.
  plan.run(on_gpu.tensors, on_gpu.workspace.data());
  const std::int64_t taken = free_before - free_bytes(device);
  BenchResult result = measured(plan, device, on_gpu.tensors, on_gpu.workspace.data(), options,
                                work_of(plan.problem(), host));
  result.memory = memory_of(on_gpu, plan);
  result.memory.driver = std::max<std::int64_t>(0, taken);
  return result;
}

}  // namespace attnforge
