#include "tuner/trials/gpu_trials.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "attnforge/error.h"
#include "runtime/driver.h"
#include "runtime/release.h"
#include "tuner/forward_lse.h"
#include "tuner/oracle.h"
#include "tuner/tensors/asked_tensors.h"
#include "tuner/tensors/problem_tensors.h"
#include "tuner/timer.h"
#include "tuner/trials/loaded_candidate.h"

namespace attnforge {
namespace {

constexpr double kHeatSeconds = 0.1, kHeatRunUs = 10e3;

/// Everything that proving and timing need on the GPU.
struct Bench {
  Bench(const Problem& problem, const DeviceFacts& device, const TrialOptions& options,
        const OwnCode& code)
      : instruments(code_of(code, instruments_source(), device.arch).bytes),
        timer(device, instruments),
        tensors(problem, options.seed, instruments, timer.stream()) {
    set_forward_lse(problem, device, code, tensors.tensors(), timer.stream());
    oracle = make_oracle(tensors.sequences(), device, tensors.tensors(), options.seed, instruments,
                         code, timer.stream());
    if (options.asked) asked.emplace(*options.asked, tensors, options.seed);
  }

  const Tensors& of(Sizes sizes) const {
    return sizes == Sizes::kAsked ? asked.value().tensors() : tensors.tensors();
  }

  Instruments instruments;
  Timer timer;
  ProblemTensors tensors;
  std::unique_ptr<Oracle> oracle;
  std::optional<AskedTensors> asked;
};

class GpuTrials : public Trials {
 public:
  GpuTrials(const Problem& problem, const DeviceFacts& device, const TrialOptions& options)
      : problem_(problem), device_(device), options_(options) {}

  bool start() override { return true; }
  bool get_ready(const OwnCode& code) override {
    bench(code);
    return true;
  }

  Measurement load(const Candidate& candidate, const Compiled& compiled, double rough_us) override {
    try {
      auto loaded = std::make_unique<LoadedCandidate>(candidate, problem_, options_.asked, device_,
                                                      compiled, gpu_.workspace);
      loaded->rough_us = rough_us;
      gpu_.loaded[loaded->config()] = std::move(loaded);
      return {};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCuda) throw;
      return launch_failed(nullptr, error);
    }
  }

  Measurement prove(const Config& config) override {
    LoadedCandidate& candidate = loaded(config);
    Bench& bench = this->bench();
    const CUstream stream = bench.timer.stream();
    Measurement result;
    try {
      gpu_.workspace.clear_counters(stream);
      // Twice: counters that a kernel must put back are wrong in the second run at the earliest.
      bench.tensors.poison_outputs(stream);
      candidate.run(bench.tensors.tensors(), stream);
      bench.tensors.remember(stream);
      bench.tensors.poison_outputs(stream);
      Event start, stop, checked;
      start.record(stream);
      candidate.run(bench.tensors.tensors(), stream);
      stop.record(stream);
      bench.tensors.check(stream);
      checked.record(stream);
      const double limit_s = hang_limit_s(candidate);
      if (!wait(checked, limit_s)) return hung(&candidate, limit_s);
      result.time_us = candidate.rough_us = elapsed_us(start, stop);
      result.samples = 1;
      const std::string findings = bench.tensors.findings(stream);
      const Oracle::Verdict verdict = bench.oracle->compare(bench.tensors.tensors(), stream);
      result.max_error = verdict.max_error;
      if (!findings.empty() || !verdict.mismatch.empty()) {
        const char* const both = !findings.empty() && !verdict.mismatch.empty() ? "; " : "";
        result.status = Status::kWrongResult;
        result.time_us = 0;
        result.detail = (findings + both + verdict.mismatch).substr(0, kDetailBytes);
        return result;
      }
    } catch (const Error& error) {
      return launch_failed(&candidate, error);
    }
    if (best_us_ == 0 || candidate.rough_us < best_us_) best_us_ = candidate.rough_us;
    return result;
  }

  std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) override {
    Bench& bench = this->bench();
    std::vector<LoadedCandidate*> items;
    double limit_s = 0;
    for (const Config& config : order) {
      items.push_back(&loaded(config));
      limit_s = std::max(limit_s, hang_limit_s(*items.back()));
      limit_s += 50e-6 * items.back()->rough_us;
    }
    const std::vector<double> nothing(order.size(), std::numeric_limits<double>::quiet_NaN());
    LoadedCandidate* const only = order.size() == 1 ? items.front() : nullptr;
    try {
      gpu_.workspace.clear_counters(bench.timer.stream());
      const Timer::Samples samples = bench.timer.sample(
          items.size(), [&](std::size_t item) { return try_run(*items[item], bench, sizes); },
          limit_s);
      if (samples.timed_out) {
        hung(items[samples.timed_out_at], limit_s);
        return nothing;
      }
      clock_mhz_ = bench.timer.clock_mhz();
      return samples.time_us;
    } catch (const Error& error) {
      launch_failed(only, error);
      return nothing;
    }
  }

  void heat(std::span<const Config> configs) override {
    if (configs.empty()) return;
    Bench& bench = this->bench();
    const auto start = std::chrono::steady_clock::now();
    const auto elapsed_s = [&] {
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    };
    LoadedCandidate* last = nullptr;
    try {
      gpu_.workspace.clear_counters(bench.timer.stream());
      for (std::size_t next = 0; elapsed_s() < kHeatSeconds;) {
        double run_us = 0, limit_s = 0;
        do {
          last = &loaded(configs[next++ % configs.size()]);
          if (!try_run(*last, bench, Sizes::kBucket)) return;  // the next sample says so
          run_us += std::max(1.0, last->rough_us);
          limit_s = std::max(limit_s, hang_limit_s(*last));
        } while (run_us < kHeatRunUs);
        Event done;
        done.record(bench.timer.stream());
        if (!wait(done, limit_s)) {
          hung(configs.size() == 1 ? last : nullptr, limit_s);
          return;
        }
      }
    } catch (const Error& error) {
      launch_failed(configs.size() == 1 ? last : nullptr, error);
    }
  }

  double clock_mhz() override { return clock_mhz_; }

  void release(const Config& config) override {
    if (!loss_) gpu_.loaded.erase(to_string(config));
  }

  const Loss* lost() const override { return loss_ ? &*loss_ : nullptr; }

 private:
  LoadedCandidate& loaded(const Config& config) {
    const auto it = gpu_.loaded.find(to_string(config));
    ATTNFORGE_ASSERT(it != gpu_.loaded.end(), "only a loaded candidate can be proved or timed");
    return *it->second;
  }

  Bench& bench(const OwnCode& code = {}) {
    if (!gpu_.bench) gpu_.bench = std::make_unique<Bench>(problem_, device_, options_, code);
    return *gpu_.bench;
  }

  double hang_limit_s(const LoadedCandidate& candidate) const {
    return attnforge::hang_limit_s(options_.hang_least_s, best_us_, candidate.rough_us,
                                   candidate.estimate_us());
  }

  static bool try_run(const LoadedCandidate& candidate, const Bench& bench, Sizes sizes) {
    try {
      candidate.run(bench.of(sizes), bench.timer.stream(), sizes);
      return true;
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCuda) throw;
      return false;
    }
  }

  /// `candidate` null: one of several.
  Measurement hung(const LoadedCandidate* candidate, double limit_s) {
    left_to_end_of_process = true;
    const Measurement result = failed(Status::kTimedOut,
                                      fmt::format("no end after {:.1f} s", limit_s));
    lose(candidate, result,
         fmt::format("did not end within {:.1f} s and cannot be stopped from inside this process",
                     limit_s));
    return result;
  }

  /// A driver call failed. If the context still works it was the launch alone; else nothing more
  /// can run in this process. `candidate` null: it may be any of several, or none that was loaded.
  Measurement launch_failed(const LoadedCandidate* candidate, const Error& error) {
    if (error.code() != ErrorCode::kCuda) throw error;
    const Measurement result = failed(Status::kLaunchError, error.what());
    if (left_to_end_of_process) {  // a kernel of another search: nothing here broke, nor ends
      lose(nullptr, result, "cannot run beside a kernel of this process that has no end");
    } else if (driver().cuCtxSynchronize() != CUDA_SUCCESS) {
      lose(candidate, result,
           fmt::format("broke the CUDA context of this process ({})", error.what()));
    }
    return result;
  }

  void lose(const LoadedCandidate* candidate, const Measurement& result, std::string_view how) {
    const std::string config = candidate ? candidate->config() : "";
    loss_ = Loss{config, result,
                 fmt::format("{} {}. What was tried is stored; end the process and start the "
                             "tuning again, it goes on where it was",
                             candidate ? config : "one of several kernels", how)};
  }

  struct Gpu {
    SharedWorkspace workspace;
    std::unique_ptr<Bench> bench;
    std::map<std::string, std::unique_ptr<LoadedCandidate>> loaded;
  };

  const Problem problem_;
  const DeviceFacts device_;
  const TrialOptions options_;
  Gpu gpu_;
  double best_us_ = 0;
  double clock_mhz_ = 0;
  std::optional<Loss> loss_;
};

}  // namespace

std::unique_ptr<Trials> make_gpu_trials(const Problem& problem, const DeviceFacts& device,
                                        const TrialOptions& options) {
  return std::make_unique<GpuTrials>(problem, device, options);
}

}  // namespace attnforge
