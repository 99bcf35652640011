// tune_bucket.cpp - tuning on the GPU of a Device: the public tune(), and first-run plans.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "generator/tensors/operands.h"
#include "plan/checks/option_checks.h"
#include "plan/choice/choice.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/load_kernel.h"
#include "runtime/compile/compiler.h"
#include "runtime/driver.h"
#include "runtime/nvtx.h"
#include "templates/registry.h"
#include "tuner/evaluator.h"
#include "tuner/search/tune.h"
#include "tuner/tensors/asked_tensors.h"
#include "tuner/trials/gpu_trials.h"
#include "tuner/trials/turns.h"
#include "tuner/trials/worker_trials.h"

namespace attnforge {
namespace {

constexpr int kMaxThreads = 1024;
// In a worker a kernel that seems to have no end can be ended, so less patience does.
constexpr double kWorkerHangLeastSeconds = 1;
constexpr double kContextBytes = 600 << 20, kBytesLeft = 256 << 20;  // left for who else is at work

using Clock = std::chrono::steady_clock;

double seconds_from(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// `share` of a limit; of none, or of more than could be counted in nanoseconds, of 11 days.
Clock::duration seconds(double share, double limit_s) {
  constexpr double kLongestSeconds = 1e6;
  const double s = share * (limit_s > 0 ? std::min(limit_s, kLongestSeconds) : kLongestSeconds);
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(s));
}

/// False if another thread was still tuning when a first run's time to wait was over.
bool lock_until(std::unique_lock<std::timed_mutex>& lock, Clock::time_point called,
                double time_limit_s) {
  return lock.try_lock_until(called + seconds(kFirstRunWaitShare, time_limit_s));
}

/// Adds what won here before, in the tier that is searched and under the same force, where a search
/// would leave it out today: what was measured knows more than rules of thumb.
void add_stored_winner(std::vector<Candidate>& all, const std::vector<const Family*>& families,
                       const ChoiceKey& key, DeviceState& state) {
  const std::string text = stored_as(key.problem, state.overrides);
  for (const Chosen& chosen : state.cache.chosen(state.device_class)) {
    if (chosen.problem != text) continue;
    std::optional<Config> config;
    try {
      config = parse_config(chosen.config);
    } catch (const Error&) {
      continue;  // plans say what is wrong with a row
    }
    const auto family = std::ranges::find(families, config->family, &Family::name);
    if (family == families.end() || (*family)->tier != all.front().family->tier ||
        std::ranges::find(all, *config, &Candidate::config) != all.end() ||
        !illegal(*config, key.problem, state.facts).empty())
      continue;
    all.push_back(candidate_of(**family, *std::move(config), key.problem, state.facts));
  }
}

/// What the call might have had without a search: the winner of a near problem, and the model's
/// choice for its own sizes. That is not added to the bucket's candidates, which are the same for
/// all of its sizes: a process that waits for another's winner must know it.
std::vector<std::string> unsearched_of(const FirstCall& call, const std::vector<Candidate>& all,
                                       const std::vector<const Family*>& families,
                                       DeviceState& state) {
  std::vector<std::string> result;
  if (call.near) result.push_back(to_string(call.near->config));
  if (call.asked.batch_invariant) return result;  // a bucket of all batches
  try {
    const Candidate choice = untuned(families, call.asked, state.facts, state.overrides);
    if (std::ranges::find(all, choice.config, &Candidate::config) != all.end())
      result.push_back(to_string(choice.config));
  } catch (const Error& error) {  // a forced axis may leave nothing for these sizes alone
    if (error.code() != ErrorCode::kUnsupported) throw;
  }
  return result;
}

/// Throws Error(kCuda) where the tensors of a search, in a process of its own, do not fit into the
/// GPU memory that is free now.
void require_memory(const Problem& problem, const DeviceFacts& device) {
  std::size_t free = 0, total = 0;
  check(driver().cuMemGetInfo(&free, &total), "ask for the GPU memory that is free");
  double needed = kContextBytes + kBytesLeft + 2.0 * static_cast<double>(device.l2_bytes);
  for (const Operand& operand : operands(problem))
    needed += 1.1 * static_cast<double>(operand.bytes());
  if (needed <= static_cast<double>(free)) return;
  constexpr double kGiB = 1 << 30;
  throw Error(
      ErrorCode::kCuda,
      fmt::format("a search needs {:.1f} GiB of GPU memory beside what is in use, and {:.1f} "
                  "GiB are free. Where nothing else runs: attnforge tune \"{}\"",
                  needed / kGiB, static_cast<double>(free) / kGiB, to_string(problem)));
}

/// By workers, if there is a program for them, else here.
std::unique_ptr<Evaluator> evaluator_of(const Problem& problem, const std::optional<Problem>& asked,
                                        const TuneOptions& options, DeviceState& state,
                                        Clock::time_point called, bool first_run) {
  TrialOptions trial{.seed = options.seed, .asked = asked};
  std::unique_ptr<Trials> trials;
  std::unique_ptr<CompileWorkers> compilers;
  Turns turns = Turns::kEachCall;
  if (const WorkerProgram& program = state.worker.program; !program.path.empty()) {
    if (first_run) require_memory(problem, state.facts);
    trial.hang_least_s = kWorkerHangLeastSeconds;
    const Clock::time_point end = first_run && options.time_limit_s > 0
                                      ? called + seconds(kFirstRunWaitShare, options.time_limit_s)
                                      : Clock::time_point::max();
    trials = make_worker_trials(problem, state.facts, program, trial, end, options.cancelled);
    compilers = std::make_unique<CompileWorkers>(program);
  } else {
    trials = make_gpu_trials(problem, state.facts, trial);
    turns = Turns::kToTheEnd;
  }
  return make_evaluator(problem, state.facts, state.cache,
                        taking_turns(std::move(trials), state.facts, turns), std::move(compilers),
                        options.compile_threads, state.overrides);
}

/// `called` is when the call began; with `first` a plan waits for the result, and its time limit
/// began then.
TuneResult tune_key(const ChoiceKey& key, const TuneOptions& options, DeviceState& state,
                    Clock::time_point called, const FirstCall* first) {
  const Overrides& overrides = state.overrides;
  const std::vector<const Family*> families = families_named(key.family, overrides);
  std::vector<Candidate> all = candidates(families, key.problem, state.facts, overrides);
  if (all.empty())
    untuned(families, key.problem, state.facts,
            overrides);  // throws Error(kUnsupported) with the reasons
  add_stored_winner(all, families, key, state);
  std::vector<std::string> unsearched;
  std::optional<Problem> asked;
  if (first) {
    unsearched = unsearched_of(*first, all, families, state);
    if (is_smaller(first->asked, key.problem)) asked = first->asked;
  }

  std::unique_lock one_at_a_time(state.tuning, std::defer_lock);
  if (!first) {
    one_at_a_time.lock();
  } else if (!lock_until(one_at_a_time, called, options.time_limit_s)) {
    TuneResult nothing;
    nothing.other_at_work = true;
    return nothing;
  }
  const ContextScope scope(state.context);
  const std::string text = stored_as(key.problem, overrides);
  const NvtxRange range("attnforge tune", text);
  const std::unique_ptr<Evaluator> evaluator = evaluator_of(key.problem, asked, options, state,
                                                            called, first != nullptr);
  TuneResult result = tune_problem(key.problem, state.facts, state.cache, *evaluator, all, options,
                                   {.driver = driver_text(state.facts),
                                    .nvrtc = nvrtc_facts().version_text(),
                                    .stored_as = text,
                                    .log = state.log_function(),
                                    .spent_s = first ? seconds_from(called) : 0,
                                    .first_run = first != nullptr,
                                    .unsearched = unsearched,
                                    .times_asked = asked.has_value(),
                                    .now_s = {},
                                    .sleep_s = {}});
  const bool found = result.tried > 0 && result.reused == result.tried;
  state.log.info(
      fmt::format("{} \"{}\" in {:.1f} s: {} at {:.2f} us ({} tried, {} failed, {} known before)",
                  found ? "found what was tuned before for" : "tuned", text, result.elapsed_s,
                  result.winner.empty() ? "nothing worked" : result.winner, result.winner_us,
                  result.tried, result.failed, result.reused));
  return result;
}

/// A search stores its winner's code, but one that an import brought comes without: plans that may
/// not compile would miss it.
void store_code_of_winner(const TuneResult& result, const ChoiceKey& key, DeviceState& state) {
  if (result.winner.empty() || result.other_at_work) return;
  const auto [source, source_digest] = rendered(parse_config(result.winner), key.problem,
                                                state.overrides);
  const Arch& arch = state.facts.arch;
  if (stored_cubin(source_digest, arch, nvrtc_facts().version_text(), state.cache)) return;
  try {
    compile_and_store(source, state);
  } catch (const Error& error) {
    state.log.warning(fmt::format("the code of the winner \"{}\" is not stored: {}", result.winner,
                                  error.what()));
  }
}

}  // namespace

FirstRun first_run(const ChoiceKey& key, const FirstCall& call, const PlanOptions& options,
                   DeviceState& state, Clock::time_point called) {
  TuneOptions tune_options;
  tune_options.time_limit_s = options.time_limit_s;
  tune_options.family = key.family;
  tune_options.on_progress = options.on_progress;
  tune_options.cancelled = options.cancelled;
  try {
    const TuneResult result = tune_key(key, tune_options, state, called, &call);
    if (result.other_at_work) {
      state.log.warning(fmt::format(
          "somebody else still tunes \"{}\" after {:.1f} s; the plan goes on with {} and "
          "a later one looks for the winner",
          to_string(key.problem), seconds_from(called),
          result.winner.empty() ? "an estimate" : "the best so far"));
    } else if (std::optional<Choice> stored = Chooser(key, state.facts, state.cache, nullptr,
                                                      state.overrides, state.log)
                                                  .stored(Rigor::kQuick);
               stored && is_measured(stored->provenance)) {
      return {.choice = std::move(stored)};
    } else if (result.winner.empty()) {
      const bool cancelled = options.cancelled && options.cancelled();
      state.log.warning(
          fmt::format("no config of \"{}\" worked {}; the plan goes on with an estimate",
                      to_string(key.problem),
                      cancelled ? std::string("before the tuning was cancelled")
                                : fmt::format("within {} s", options.time_limit_s)));
    }
    if (result.winner.empty()) return {.provisional = result.other_at_work};
    Config config = parse_config(result.winner);
    return {.choice = Choice{.family = find_family(config.family),
                             .config = std::move(config),
                             .provenance = Provenance::kMeasured,
                             .layer = Layer::kDatabase,
                             .measured_us = result.winner_us,
                             .nvrtc = nvrtc_facts().version_text(),
                             .why = "it is the fastest of those that were tried so far"},
            .provisional = result.other_at_work};
  } catch (const Error& error) {
    state.log.warning(fmt::format("\"{}\" was not tuned and the plan goes on with an estimate: {}",
                                  to_string(key.problem), error.what()));
    // What the search had stored before may be better than an estimate.
    return {.choice = Chooser(key, state.facts, state.cache, nullptr, state.overrides, state.log)
                          .stored()};
  }
}

Problem measured_as(const Problem& problem) { return bucket(problem); }

TuneResult tune(const Problem& problem, Device& device, const TuneOptions& options) {
  validate(problem);
  require_seconds("time_limit_s", options.time_limit_s);
  require_count("compile_threads", options.compile_threads, 0, kMaxThreads);
  if (problem.batch == 0 || problem.seqlen_q == 0)
    throw_error(ErrorCode::kInvalidArgument,
                "\"{}\" has nothing to tune: without sequences or queries no kernel is launched",
                to_string(problem));
  DeviceState& state = state_of(device);
  if (options.must_keep) state.cache.require_keeping("results");
  const ChoiceKey key{bucket(problem), options.family, ""};
  warn_of_slow_path(key, state);
  TuneResult result = tune_key(key, options, state, Clock::now(), nullptr);
  store_code_of_winner(result, key, state);
  // Plans made from now on ask the database again. Those made before run on with the kernel that
  // they have.
  state.kernels.forget_if([&](const ChoiceKey& known, LoadedKernel& kernel) {
    if (!(known.problem == key.problem) || !known.config.empty()) return false;
    kernel.superseded.store(true, std::memory_order_relaxed);
    return true;
  });
  return result;
}

}  // namespace attnforge
