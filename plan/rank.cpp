// rank.cpp - candidates compiled and ranked without the GPU that they are for.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <tuple>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "generator/arch.h"
#include "plan/choice.h"
#include "plan/compile_info.h"
#include "plan/cubins.h"
#include "runtime/compiler.h"

namespace attnforge {
namespace {

struct Compiled {
  Candidate candidate;
  Source source;
  CompileInfo info;
};

/// Threads that are joined on every path.
class Threads {
 public:
  template <class Work>
  Threads(std::size_t count, const Work& work) {
    threads_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) threads_.emplace_back(work);
  }
  ~Threads() {
    for (std::thread& thread : threads_) thread.join();
  }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  std::vector<std::thread> threads_;
};

/// Compiles all in parallel; on_done is called on this thread after each.
void compile_all(std::vector<Compiled>& work, const Problem& problem, const DeviceFacts& device,
                 Cache& cache, const std::function<void(int done, int failed)>& on_done) {
  std::mutex mutex;
  std::condition_variable changed;
  int done = 0, failed = 0;
  std::exception_ptr broken;  // not this candidate's fault: no NVRTC
  std::atomic<std::size_t> next = 0;
  const auto worker = [&] {
    for (std::size_t i = next++; i < work.size(); i = next++) {
      Compiled& mine = work[i];
      std::exception_ptr failure;
      try {
        const Launch launch = mine.candidate.family->launch(mine.candidate.config, problem, device);
        mine.info = describe(compile_and_store(mine.source, device.arch, cache, Logger()), launch,
                             device.arch);
      } catch (const Error& error) {
        if (error.code() != ErrorCode::kCompile) failure = std::current_exception();
        mine.info = describe_failure(error.what());
      } catch (...) {
        failure = std::current_exception();
      }
      const std::lock_guard lock(mutex);
      ++done;
      if (!mine.info.ok) ++failed;
      if (failure) {
        broken = failure;
        next = work.size();
      }
      changed.notify_one();
    }
  };

  {
    const Threads threads(
        std::clamp<std::size_t>(std::thread::hardware_concurrency(), 1, work.size()), worker);
    std::unique_lock lock(mutex);
    for (int reported = 0; !broken && reported < static_cast<int>(work.size());) {
      changed.wait(lock, [&] { return broken || reported < done; });
      reported = done;
      const int failed_now = failed;
      lock.unlock();
      std::exception_ptr failure;
      try {
        on_done(reported, failed_now);
      } catch (...) {
        failure = std::current_exception();
      }
      lock.lock();
      if (!failure) continue;
      broken = failure;
      next = work.size();
    }
  }
  if (broken) std::rethrow_exception(broken);
}

Try as_try(const Compiled& compiled, const Problem& problem, const DeviceFacts& device) {
  Try result;
  result.problem = to_string(problem);
  result.device_class = device_class(device);
  result.config = to_string(compiled.candidate.config);
  result.family = compiled.candidate.family->name;
  result.digest = digest(compiled.source);
  result.rigor = Rigor::kQuick;
  result.estimate_us = compiled.candidate.estimate_us;
  result.estimated = true;
  result.measurement.status = compiled.info.ok ? Status::kOk : Status::kCompileError;
  result.measurement.detail = compiled.info.log;
  result.nvrtc = nvrtc_facts().version_text();
  return result;
}

/// Throws Error(kCache) where a plan would go on without a database: here the database is the
/// point.
Cache open_for_writing(const std::string& path) {
  std::string why;
  const LogFunction keep = [&why](LogLevel, std::string_view message) { why = message; };
  Cache cache(path, /*read_only=*/false, keep);
  const std::string wanted = path.empty() ? default_cache_path() : path;
  if (cache.path() == ":memory:" && wanted != ":memory:") {
    throw Error(ErrorCode::kCache,
                fmt::format("estimates cannot be stored in {}: {}", wanted, why));
  }
  return cache;
}

}  // namespace

std::vector<RankedCandidate> rank_untuned(const Problem& problem, const DeviceFacts& device,
                                          int count, const std::string& cache_path,
                                          const ProgressFunction& on_progress) {
  validate(problem);
  if (count < 1)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("count={} must be at least 1", count));
  const ChoiceKey key{bucket(problem), "", ""};
  const std::vector<const Family*> families = families_named("");
  std::vector<Candidate> best = candidates(families, key.problem, device);
  if (best.empty())
    untuned(families, key.problem, device);  // throws Error(kUnsupported) with the reasons
  if (best.size() > static_cast<std::size_t>(count)) best.resize(static_cast<std::size_t>(count));

  std::vector<Compiled> work;
  for (Candidate& candidate : best) {
    Source source = candidate.family->render(candidate.config, key.problem);
    work.push_back({std::move(candidate), std::move(source), {}});
  }
  Cache cache = open_for_writing(cache_path);
  Progress progress{.phase = Progress::Phase::kCompile,
                    .total = static_cast<int>(work.size()),
                    .best_config = {}};
  const auto start = std::chrono::steady_clock::now();
  compile_all(work, key.problem, device, cache, [&](int done, int failed) {
    progress.done = done;
    progress.failed = failed;
    progress.elapsed_s =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    progress.remaining_s = done > 0 ? progress.elapsed_s / done * (progress.total - done) : 0;
    if (on_progress) on_progress(progress);
  });

  // The model does not know what the compiler does with registers: a kernel that spills stands
  // behind all that do not.
  std::stable_sort(work.begin(), work.end(), [](const Compiled& a, const Compiled& b) {
    const auto rank = [](const Compiled& each) {
      return std::tuple(!each.info.ok, each.info.spill_bytes > 0, each.candidate.estimate_us,
                        -each.info.occupancy);
    };
    return rank(a) < rank(b);
  });
  std::vector<RankedCandidate> ranked;
  std::vector<Try> tries;
  for (const Compiled& each : work) {
    ranked.push_back({to_string(each.candidate.config), each.candidate.estimate_us, each.info});
    tries.push_back(as_try(each, key.problem, device));
  }
  cache.put(tries);
  return ranked;
}

}  // namespace attnforge
