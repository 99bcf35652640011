// rank.cpp - candidates compiled and ranked without the GPU that they are for.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <tuple>

#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "generator/arch.h"
#include "plan/choice/choice.h"
#include "plan/load_kernel.h"
#include "plan/overrides.h"
#include "plan/tools/compile_info.h"
#include "runtime/compile/compiler.h"
#include "tuner/compile_pool.h"

namespace attnforge {
namespace {

struct Ranked {
  Candidate candidate;
  Source source;
  CompileInfo info;
  bool done = false;
};

/// Compiles all in parallel, or as many as keep_going lets; on_done is called on this thread after
/// each.
void compile_all(std::vector<Ranked>& work, const Problem& problem, const DeviceFacts& device,
                 Cache& cache, const std::function<bool()>& keep_going,
                 const std::function<void(int done, int failed)>& on_done) {
  int done = 0, failed = 0;
  CompilePool pool(0);
  const auto job = [&](std::size_t index, const std::atomic<bool>&) {
    Compiled result;
    try {
      result.cubin = compile_and_store(work[index].source, device.arch, cache, Logger());
    } catch (const Error& error) {
      result.failure = {.status = Status::kCompileError, .detail = error.what()};
      if (error.code() != ErrorCode::kCompile) result.trouble = std::current_exception();
    } catch (...) {
      result.trouble = std::current_exception();
    }
    return result;
  };
  const auto take = [&](std::size_t index, Compiled&& compiled) {
    if (compiled.trouble) std::rethrow_exception(compiled.trouble);  // no NVRTC, no memory
    Ranked& mine = work[index];
    if (compiled.failure.status == Status::kOk) {
      const Config& config = mine.candidate.config;
      const Launch launch = mine.candidate.family->launch(config, problem, device);
      mine.info = describe(compiled.cubin, mine.source, launch, device.arch);
    } else {
      mine.info = {.ok = false, .log = compiled.failure.detail};
      ++failed;
    }
    mine.done = true;
    on_done(++done, failed);
  };
  pool.run(work.size(), job, keep_going, take);
}

Try as_try(const Ranked& ranked, const std::string& stored_problem, const DeviceFacts& device) {
  Try result;
  result.problem = stored_problem;
  result.device_class = device_class(device);
  result.config = to_string(ranked.candidate.config);
  result.family = ranked.candidate.family->name;
  result.digest = digest(ranked.source);
  result.rigor = Rigor::kQuick;
  result.estimate_us = ranked.candidate.estimate_us;
  result.estimated = true;
  result.measurement.status = ranked.info.ok ? Status::kOk : Status::kCompileError;
  result.measurement.detail = ranked.info.log;
  result.nvrtc = nvrtc_facts().version_text();
  return result;
}

}  // namespace

std::vector<RankedCandidate> rank_untuned(const Problem& problem, const DeviceFacts& whole_device,
                                          int count, const std::string& cache_path,
                                          const ProgressFunction& on_progress,
                                          const std::function<bool()>& cancelled) {
  validate(problem);
  if (count < 1)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("count={} must be at least 1", count));
  const Overrides overrides = overrides_from_environment();
  const DeviceFacts device = limited(whole_device, overrides);
  const ChoiceKey key{bucket(problem), "", ""};
  const std::vector<const Family*> families = families_named("", overrides);
  std::vector<Candidate> best = candidates(families, key.problem, device, overrides);
  if (best.empty())
    untuned(families, key.problem, device,
            overrides);  // throws Error(kUnsupported) with the reasons
  if (best.size() > static_cast<std::size_t>(count)) best.resize(static_cast<std::size_t>(count));

  std::vector<Ranked> work;
  for (Candidate& candidate : best) {
    Source source = render(*candidate.family, candidate.config, key.problem, overrides);
    work.push_back({std::move(candidate), std::move(source), {}, false});
  }
  Cache cache(cache_path);
  cache.require_keeping("estimates");
  Progress progress{.phase = Progress::Phase::kCompile,
                    .total = static_cast<int>(work.size()),
                    .best_config = {}};
  const auto start = std::chrono::steady_clock::now();
  const auto keep_going = [&] { return !cancelled || !cancelled(); };
  compile_all(work, key.problem, device, cache, keep_going, [&](int done, int failed) {
    progress.done = done;
    progress.failed = failed;
    progress.elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
                             .count();
    progress.remaining_s = done > 0 ? progress.elapsed_s / done * (progress.total - done) : 0;
    if (on_progress) on_progress(progress);
  });

  std::erase_if(work, [](const Ranked& each) { return !each.done; });
  // The model does not know what the compiler does with registers: a kernel that spills comes
  // after all that do not.
  std::stable_sort(work.begin(), work.end(), [](const Ranked& a, const Ranked& b) {
    const auto rank = [](const Ranked& each) {
      return std::tuple(!each.info.ok, each.info.spill_bytes > 0, each.candidate.estimate_us,
                        -each.info.occupancy);
    };
    return rank(a) < rank(b);
  });
  std::vector<RankedCandidate> ranked;
  std::vector<Try> tries;
  for (const Ranked& each : work) {
    ranked.push_back({to_string(each.candidate.config), each.candidate.estimate_us, each.info});
    tries.push_back(as_try(each, stored_as(key.problem, overrides), device));
  }
  cache.put(tries);
  return ranked;
}

}  // namespace attnforge
