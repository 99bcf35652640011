#include "tuner/in_process_evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "attnforge/error.h"
#include "runtime/compile/compiler.h"
#include "runtime/release.h"
#include "tuner/compile_pool.h"
#include "tuner/forward_lse.h"
#include "tuner/loaded_candidate.h"
#include "tuner/oracle.h"
#include "tuner/problem_tensors.h"
#include "tuner/timer.h"

namespace attnforge {
namespace {

constexpr std::size_t kDetailBytes = 4096;
constexpr double kHangLeastSeconds = 2, kHangBest = 50, kHangEstimate = 20;
constexpr double kHeatSeconds = 0.1, kHeatRunUs = 10e3;

Measurement failed(Status status, const std::string& detail) {
  Measurement result;
  result.status = status;
  result.detail = detail.substr(0, kDetailBytes);
  return result;
}

/// Everything that proving and timing need on the GPU.
struct Bench {
  Bench(const Problem& problem, const DeviceFacts& device, unsigned seed)
      : instruments(device.arch),
        timer(device, instruments),
        tensors(problem, seed, instruments, timer.stream()) {
    set_forward_lse(problem, device, tensors.tensors(), timer.stream());
    oracle = make_oracle(tensors.sequences(), device, tensors.tensors(), seed, instruments,
                         timer.stream());
  }

  Instruments instruments;
  Timer timer;
  ProblemTensors tensors;
  std::unique_ptr<Oracle> oracle;
};

class InProcessEvaluator : public Evaluator {
 public:
  InProcessEvaluator(const Problem& problem, const DeviceFacts& device, Cache& cache,
                     int compile_threads, unsigned seed, const Overrides& overrides)
      : problem_(problem),
        device_(device),
        cache_(cache),
        seed_(seed),
        overrides_(overrides),
        pool_(compile_threads) {}

  std::string digest_of(const Candidate& candidate) override {
    return digest(render(*candidate.family, candidate.config, problem_, overrides_));
  }

  void prepare(std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
               const std::function<void(std::size_t, const Measurement&)>& on_done) override {
    const std::vector<Candidate> batch(candidates.begin(), candidates.end());
    pool_.run(
        batch.size(),
        [this, batch](std::size_t index, const std::atomic<bool>& unwanted) {
          return compile_candidate(batch[index], unwanted);
        },
        [&] {
          if (!loss_) bench();  // memory and oracle, while the first kernels compile
          return !loss_ && keep_going();
        },
        [&](std::size_t index, Compiled&& compiled) {
          if (compiled.trouble) std::rethrow_exception(compiled.trouble);
          if (loss_) return;  // a load, too, would wait for a kernel without end
          on_done(index, load(batch[index], std::move(compiled)));
        });
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

  std::vector<double> sample_us(std::span<const Config> order) override {
    Bench& bench = this->bench();
    std::vector<LoadedCandidate*> items;
    double limit_s = 0;
    for (const Config& config : order) {
      items.push_back(&loaded(config));
      limit_s = std::max(limit_s, hang_limit_s(*items.back()));
      limit_s += 1e-6 * kHangBest * items.back()->rough_us;
    }
    const std::vector<double> nothing(order.size(), std::numeric_limits<double>::quiet_NaN());
    LoadedCandidate* const only = order.size() == 1 ? items.front() : nullptr;
    try {
      gpu_.workspace.clear_counters(bench.timer.stream());
      const Timer::Samples samples = bench.timer.sample(
          items.size(), [&](std::size_t item) { return try_run(*items[item], bench); }, limit_s);
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
          if (!try_run(*last, bench)) return;  // the next sample says so
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

  void keep(const Config& config) override {
    const Compiled& compiled = loaded(config).compiled();
    cache_.put_cubin(compiled.cubin, compiled.source.text, compiled.source.name);
  }

  void release(const Config& config) override {
    if (!loss_) gpu_.loaded.erase(to_string(config));
  }

  const Loss* lost() const override { return loss_ ? &*loss_ : nullptr; }

 private:
  /// On the pool's threads: no CUDA context, nothing that is not const or thread-safe.
  Compiled compile_candidate(const Candidate& candidate, const std::atomic<bool>& unwanted) const {
    Compiled result;
    try {
      result.source = render(*candidate.family, candidate.config, problem_, overrides_);
      std::optional<Cubin> known = cache_.get_cubin(digest(result.source), device_.arch.name,
                                                    nvrtc_facts().version_text());
      result.cubin = known ? *std::move(known)
                           : compile(result.source, device_.arch, {.unwanted = &unwanted});
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kCompile) {
        result.failure = failed(Status::kCompileError, error.what());
      } else {
        result.trouble = std::current_exception();
      }
    } catch (...) {
      result.trouble = std::current_exception();
    }
    return result;
  }

  Measurement load(const Candidate& candidate, Compiled&& compiled) {
    if (compiled.failure.status != Status::kOk) return compiled.failure;
    try {
      auto loaded = std::make_unique<LoadedCandidate>(candidate, problem_, device_,
                                                      std::move(compiled), gpu_.workspace);
      gpu_.loaded[loaded->config()] = std::move(loaded);
      return {};
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kCuda) throw;
      return launch_failed(nullptr, error);
    }
  }

  LoadedCandidate& loaded(const Config& config) {
    const auto it = gpu_.loaded.find(to_string(config));
    ATTNFORGE_ASSERT(it != gpu_.loaded.end(),
                     "only a prepared candidate can be proved, timed or kept");
    return *it->second;
  }

  Bench& bench() {
    if (!gpu_.bench) gpu_.bench = std::make_unique<Bench>(problem_, device_, seed_);
    return *gpu_.bench;
  }

  double hang_limit_s(const LoadedCandidate& candidate) const {
    const double us = std::max(kHangBest * std::max(best_us_, candidate.rough_us),
                               kHangEstimate * candidate.estimate_us());
    return std::max(kHangLeastSeconds, 1e-6 * us);
  }

  static bool try_run(const LoadedCandidate& candidate, const Bench& bench) {
    try {
      candidate.run(bench.tensors.tensors(), bench.timer.stream());
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
    if (driver().cuCtxSynchronize() != CUDA_SUCCESS)
      lose(candidate, result,
           fmt::format("broke the CUDA context of this process ({})", error.what()));
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
  Cache& cache_;
  const unsigned seed_;
  const Overrides overrides_;
  Gpu gpu_;
  double best_us_ = 0;
  double clock_mhz_ = 0;
  std::optional<Loss> loss_;
  CompilePool pool_;  // last: its threads use what is above
};

}  // namespace

std::unique_ptr<Evaluator> make_in_process_evaluator(const Problem& problem,
                                                     const DeviceFacts& device, Cache& cache,
                                                     int compile_threads, unsigned seed,
                                                     const Overrides& overrides) {
  return std::make_unique<InProcessEvaluator>(problem, device, cache, compile_threads, seed,
                                              overrides);
}

}  // namespace attnforge
