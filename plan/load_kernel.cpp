#include "plan/load_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <iterator>
#include <mutex>
#include <span>

#include "attnforge/error.h"
#include "plan/choice/choice.h"
#include "plan/context_scope.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/machine_code_digest.h"
#include "runtime/nvtx.h"
#include "tuner/worker/compile_workers.h"

namespace attnforge {
namespace {

constexpr std::int64_t kLookAgainNs = 1'000'000'000;
constexpr double kLookLeaseSeconds = 5;

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool may_tune(const PlanOptions& options) {
  return options.policy == Policy::kFirstRun && options.allow_compile;
}
/// Whether a first run can try kernels where they do no harm. Else it uses what was proved before.
bool can_tune(const DeviceState& state) {
  return state.worker.in_process || !state.worker.program.path.empty();
}
/// Only what was measured as the code of today.
bool answers_cached_only(Provenance provenance) {
  return is_measured(provenance) || provenance == Provenance::kNearDevice;
}
bool may_compile(const PlanOptions& options) {
  return options.policy != Policy::kCachedOnly && options.allow_compile;
}

[[noreturn]] void throw_not_ready(const ChoiceKey& key, const PlanOptions& options,
                                  const DeviceState& state, std::string_view missing) {
  const std::string problem = to_string(key.problem);
  throw Error(ErrorCode::kNotReady,
              fmt::format("no kernel is ready for \"{}\" on {}: {}, and {} forbids compiling one. "
                          "Database: {}. Make it with: "
                          "attnforge tune \"{}\"",
                          problem, state.device_class, missing,
                          options.policy == Policy::kCachedOnly ? "policy cached_only"
                                                                : "allow_compile = false (no JIT)",
                          state.cache.path(), problem));
}

/// Throws Error(kNotReady) if the code is not there and must not be compiled, Error(kCompile),
/// Error(kNoDriver) without NVRTC, Error(kCuda).
std::unique_ptr<LoadedKernel> load(const Choice& choice, const ChoiceKey& key,
                                   const PlanOptions& options, DeviceState& state) {
  auto loaded = std::make_unique<LoadedKernel>();
  loaded->asked_family = key.family;
  loaded->asked_config = key.config;
  loaded->family = choice.family;
  loaded->config = choice.config;
  loaded->config_text = to_string(choice.config);
  loaded->provenance = choice.provenance;
  loaded->layer = choice.layer;
  loaded->measured_us = choice.measured_us;
  const Launch launch = choice.family->launch(choice.config, key.problem, state.facts);
  if (launch.steps.empty()) return loaded;  // batch or seqlen_q is 0

  std::optional<Rendered> own;
  if (!choice.rendered) own = rendered(choice.config, key.problem, state.overrides);
  const auto& [source, digest] = choice.rendered ? *choice.rendered : *own;
  loaded->digest = digest;
  const std::string& name = loaded->config_text;
  loaded->kernels = load_code(
      source, launch,
      choice.cubin ? choice.cubin
                   : stored_cubin(digest, state.facts.arch, choice.nvrtc, state.cache),
      may_compile(options), name,
      [&] {
        throw_not_ready(key, options, state, fmt::format("the code of \"{}\" is not stored", name));
      },
      state);
  return loaded;
}

std::optional<Cubin> code_of_today(const Rendered& rendered, const std::string& nvrtc,
                                   bool may_compile, DeviceState& state) {
  const Arch& arch = state.facts.arch;
  std::optional<Cubin> stored = stored_cubin(rendered.digest, arch, nvrtc, state.cache);
  if (stored || !may_compile) return stored;
  return compile_and_store(rendered.source, state);
}

/// machine_code_digest() of what a stale choice was measured with; "" if that is not known.
std::string code_then(const Choice& choice, const DeviceState& state) {
  if (choice.cubins == nullptr) return choice.stale_code;
  const std::optional<Cubin> then = choice.cubins->get_cubin(
      choice.stale->digest, state.facts.arch.name, choice.stale->nvrtc);
  return then ? machine_code_digest(then->bytes) : "";
}

/// Compares the code that a stale choice was measured with, where its layer has it, to that of
/// today's source, which is compiled if it is not stored and `may_compile`. Where they are equal
/// the choice becomes a measured one, and the device's own try is stored under today's digest too:
/// the next process finds it so. Anything else, or a compile that fails, leaves the choice as it
/// is. Never throws but for lack of memory.
void recognise(Choice& choice, bool may_compile, DeviceState& state) {
  if (!choice.stale || !choice.rendered) return;
  Try won = *choice.stale;
  try {
    const std::string then = code_then(choice, state);
    if (then.empty()) return;
    std::optional<Cubin> now = code_of_today(*choice.rendered, won.nvrtc, may_compile, state);
    if (!now) return;
    const bool same = machine_code_digest(now->bytes) == then;
    choice.cubin = std::move(now);
    if (!same) return;
  } catch (const Error& error) {
    state.log.debug(
        fmt::format("whether \"{}\" still has the code that was measured is not known: {}",
                    won.config, error.what()));
    return;
  }
  choice.provenance = Provenance::kMeasured;
  choice.measured_us = won.measurement.time_us;
  choice.why = "it was measured; its source was changed since, its machine code was not";
  won.config = to_string(choice.config);  // without words that it may have carried then
  won.digest = choice.rendered->digest;
  choice.stale.reset();
  if (choice.layer != Layer::kDatabase) return;
  try {
    state.cache.put({won});
  } catch (const Error& error) {
    state.log.warning(fmt::format("that \"{}\" has the code that was measured is not stored: {}",
                                  won.config, error.what()));
  }
}

/// The first choice of those that load. Each list is asked for when all before failed. Throws the
/// first failure if all fail.
std::unique_ptr<LoadedKernel> load_first(
    std::span<const std::function<std::vector<Choice>()>> lists, const ChoiceKey& key,
    const PlanOptions& options, DeviceState& state) {
  std::vector<Config> failed;
  std::exception_ptr first;
  for (const auto& list : lists) {
    for (const Choice& choice : list()) {
      if (std::ranges::find(failed, choice.config) != failed.end()) continue;
      try {
        return load(choice, key, options, state);
      } catch (const Error& error) {
        if (error.code() == ErrorCode::kInternal) throw;
        if (!first) first = std::current_exception();
        failed.push_back(choice.config);
        if (error.code() == ErrorCode::kNotReady) continue;
        state.log.warning(
            fmt::format("\"{}\" cannot be used for \"{}\" and the next choice is tried: {}",
                        to_string(choice.config), to_string(key.problem), error.what()));
      }
    }
  }
  std::rethrow_exception(first);
}

}  // namespace

bool time_to_look_again(const LoadedKernel& kernel, const PlanOptions& options) {
  return kernel.provisional && may_tune(options) &&
         now_ns() >= kernel.look_again_ns.load(std::memory_order_relaxed);
}

void look_again(const ChoiceKey& key, DeviceState& state) {
  LoadedKernel* const kernel = state.kernels.find(key);
  if (kernel == nullptr) return;
  kernel->look_again_ns.store(now_ns() + kLookAgainNs, std::memory_order_relaxed);
  // Leases belong to the process: one that another thread tunes under is not to be touched.
  const std::unique_lock alone(state.tuning, std::try_to_lock);
  if (!alone.owns_lock()) return;
  const std::string problem = stored_as(key.problem, state.overrides);
  if (!state.cache.acquire_lease(problem, state.device_class, kLookLeaseSeconds)) return;
  state.cache.release_lease(problem, state.device_class);
  kernel->superseded.store(true, std::memory_order_relaxed);
}

bool good_enough(const LoadedKernel& kernel, const PlanOptions& options) {
  if (kernel.superseded.load(std::memory_order_relaxed)) return false;
  if (kernel.kernels.empty() || kernel.provenance == Provenance::kForced) return true;
  if (options.policy == Policy::kCachedOnly) return answers_cached_only(kernel.provenance);
  return !may_tune(options) || is_measured(kernel.provenance) || kernel.tuning_tried;
}

std::unique_ptr<LoadedKernel> choose_and_load(const ChoiceKey& key, const Problem& asked,
                                              const PlanOptions& options, DeviceState& state,
                                              std::chrono::steady_clock::time_point called) {
  if (!key.config.empty())
    return load(forced_choice(key.config, key.problem, state.facts, state.overrides), key, options,
                state);
  Cache* const site = state.site ? &*state.site : nullptr;
  Chooser chooser(key, state.facts, state.cache, site, state.overrides, state.log);
  chooser.require_support();
  if (key.problem.batch == 0 || key.problem.seqlen_q == 0)
    return load(chooser.untuned(), key, options, state);  // loads nothing

  const bool tunes = may_tune(options) && can_tune(state);
  bool provisional = false;
  if (may_tune(options) && !tunes && state.said.first(state.worker.missing))
    state.log.info("first runs go by what was tuned before: " + state.worker.missing);
  // What a search that still goes on has stored so far is not its answer.
  const std::optional<Rigor> at_least = tunes ? std::optional(Rigor::kQuick) : std::nullopt;
  std::optional<Choice> stored = chooser.stored(at_least, [&](Choice& found) {
    recognise(found, may_compile(options), state);
    if (found.layer == Layer::kSite && !found.cubin)
      found.cubin = stored_cubin(found.rendered->digest, state.facts.arch, found.nvrtc, *site);
  });
  if (tunes && (!stored || !is_measured(stored->provenance))) {
    FirstRun found = first_run(key, {asked, chooser.near()}, options, state, called);
    if (found.choice) stored = std::move(found.choice);
    provisional = found.provisional;
  }
  const bool cached_only = options.policy == Policy::kCachedOnly;
  if (cached_only && (!stored || !answers_cached_only(stored->provenance)))
    throw_not_ready(key, options, state, chooser.undecided());

  const auto listed = [](const std::optional<Choice>& choice) {
    return choice ? std::vector{*choice} : std::vector<Choice>();
  };
  const std::function<std::vector<Choice>()> lists[] = {
      [&] { return listed(stored); }, [&] { return listed(chooser.near()); },
      [&] { return std::vector{chooser.untuned()}; }, [&] { return chooser.fallbacks(); }};
  std::unique_ptr<LoadedKernel> loaded = load_first(
      std::span(lists).first(cached_only ? 1 : std::size(lists)), key, options, state);
  loaded->tuning_tried = may_tune(options);
  loaded->provisional = provisional;
  loaded->look_again_ns = now_ns() + kLookAgainNs;
  if (!forced_text(state.overrides).empty()) loaded->provenance = Provenance::kForced;
  return loaded;
}

void require_arch(const DeviceFacts& device) {
  if (!device.arch.name.empty()) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("{} has compute capability {}.{}, which attnforge has no kernels for",
                          device.name, device.arch.sm / 10, device.arch.sm % 10));
}

std::optional<Cubin> stored_cubin(const std::string& source_digest, const Arch& arch,
                                  const std::string& nvrtc, Cache& cache) {
  if (!nvrtc.empty()) {
    if (std::optional<Cubin> cubin = cache.get_cubin(source_digest, arch.name, nvrtc)) return cubin;
  }
  return cache.get_cubin(source_digest, arch.name, "");
}

Cubin compile_and_store(const Source& source, const Arch& arch, Cache& cache, const Logger& log,
                        const WorkerProgram& program) {
  const NvtxRange range("attnforge compile", source.name);
  const std::atomic<bool> unwanted = false;
  Cubin cubin = source.users_code && !program.path.empty()
                    ? CompileWorkers(program).compile(source, arch, unwanted)
                    : compile(source, arch);
  log.info(fmt::format("compiled {} for sm_{} in {:.0f} ms: {} registers, {} bytes spilled",
                       source.name, arch.name, cubin.compile_ms, cubin.registers,
                       cubin.spill_store_bytes + cubin.spill_load_bytes));
  try {
    cache.put_cubin(cubin, source.text, source.name);
  } catch (const Error& error) {
    log.warning(fmt::format("the code of {} is not stored: {}", source.name, error.what()));
  }
  return cubin;
}

Cubin compile_and_store(const Source& source, DeviceState& state) {
  Cubin cubin = compile_and_store(source, state.facts.arch, state.cache, state.log,
                                  state.worker.program);
  ++state.compiles;
  return cubin;
}

LoadedKernels load_code(const Source& source, const Launch& launch,
                        const std::optional<Cubin>& stored, bool may_compile,
                        const std::string& name, const std::function<void()>& not_ready,
                        DeviceState& state) {
  const ContextScope scope(state.context);
  if (stored) {
    try {
      return {stored->bytes, source, launch};
    } catch (const Error& error) {
      // Code of a newer NVRTC than the driver knows, for one. What is compiled here and now may
      // still load.
      if (!may_compile) throw;
      state.log.warning(fmt::format("stored code of \"{}\" does not load and is compiled again: {}",
                                    name, error.what()));
    }
  }
  if (!may_compile) not_ready();
  const Cubin cubin = compile_and_store(source, state);
  return {cubin.bytes, source, launch};
}

}  // namespace attnforge
