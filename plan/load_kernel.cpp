#include "plan/load_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <optional>

#include "attnforge/error.h"
#include "plan/choice/choice.h"
#include "plan/choice/same_code.h"
#include "plan/choice/tune_bucket.h"
#include "plan/context_scope.h"
#include "plan/cubins.h"

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
  loaded->measured_us = choice.measured_us;
  const Launch launch = choice.family->launch(choice.config, key.problem, state.facts);
  if (launch.steps.empty()) return loaded;  // batch or seqlen_q is 0

  std::optional<Rendered> own;
  if (!choice.rendered) own = rendered(choice.config, key.problem, state.overrides);
  const auto& [source, digest] = choice.rendered ? *choice.rendered : *own;
  loaded->digest = digest;
  const Arch& arch = state.facts.arch;
  if (const std::optional<Cubin> stored = choice.cubin ? choice.cubin
                                                       : stored_cubin(digest, arch, choice.nvrtc,
                                                                      state.cache)) {
    try {
      const ContextScope scope(state.context);
      loaded->kernels = LoadedKernels(stored->bytes, source, launch);
      return loaded;
    } catch (const Error& error) {
      // Code of a newer NVRTC than the driver knows, for one. What is compiled here and now may
      // still load.
      if (!may_compile(options)) throw;
      state.log.warning(fmt::format("stored code of \"{}\" does not load and is compiled again: {}",
                                    loaded->config_text, error.what()));
    }
  }
  if (!may_compile(options)) {
    throw_not_ready(key, options, state,
                    fmt::format("the code of \"{}\" is not stored", loaded->config_text));
  }
  const Cubin cubin = compile_and_store(source, state);
  const ContextScope scope(state.context);
  loaded->kernels = LoadedKernels(cubin.bytes, source, launch);
  return loaded;
}

/// Tries choices in turn; remembers the first failure, which is the one to report if all fail.
class Attempts {
 public:
  Attempts(const ChoiceKey& key, const PlanOptions& options, DeviceState& state)
      : key_(key), options_(options), state_(state) {}

  std::unique_ptr<LoadedKernel> operator()(const Choice& choice) {
    if (std::find(failed_.begin(), failed_.end(), choice.config) != failed_.end()) return nullptr;
    try {
      return load(choice, key_, options_, state_);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      if (!first_) first_ = std::current_exception();
      failed_.push_back(choice.config);
      if (error.code() != ErrorCode::kNotReady) {
        state_.log.warning(
            fmt::format("\"{}\" cannot be used for \"{}\" and the next choice is tried: {}",
                        to_string(choice.config), to_string(key_.problem), error.what()));
      }
      return nullptr;
    }
  }
  [[noreturn]] void rethrow() const { std::rethrow_exception(first_); }

 private:
  const ChoiceKey& key_;
  const PlanOptions& options_;
  DeviceState& state_;
  std::vector<Config> failed_;
  std::exception_ptr first_;
};

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

std::unique_ptr<LoadedKernel> choose_and_load(const ChoiceKey& key, const PlanOptions& options,
                                              DeviceState& state,
                                              std::chrono::steady_clock::time_point called) {
  if (!key.config.empty())
    return load(forced_choice(key.config, key.problem, state.facts, state.overrides), key, options,
                state);
  require_support(key, state.facts, state.overrides);
  if (key.problem.batch == 0 || key.problem.seqlen_q == 0) {
    return load(untuned_choice(key, state.facts, state.overrides), key, options,
                state);  // loads nothing
  }

  Attempts attempt(key, options, state);
  bool tuning_tried = false, provisional = false;
  // What a search that still goes on has stored so far is not its answer.
  const std::optional<Rigor> at_least = may_tune(options) ? std::optional(Rigor::kQuick)
                                                          : std::nullopt;
  std::optional<Choice> stored = stored_choice(key, state.facts, state.cache, state.overrides,
                                               state.log, at_least);
  if (stored) recognise(*stored, may_compile(options), state);
  if (may_tune(options) && (!stored || !is_measured(stored->provenance))) {
    tuning_tried = true;
    FirstRun found = first_run(key, options, state, called);
    if (found.choice) stored = std::move(found.choice);
    provisional = found.provisional;
  }
  if (options.policy == Policy::kCachedOnly &&
      (!stored || !answers_cached_only(stored->provenance))) {
    throw_not_ready(key, options, state, undecided(key, state.facts, state.cache, state.overrides));
  }
  const bool forced = !forced_text(state.overrides).empty();
  const auto with_note = [&](std::unique_ptr<LoadedKernel> loaded) {
    loaded->tuning_tried = tuning_tried;
    loaded->provisional = provisional;
    loaded->look_again_ns = now_ns() + kLookAgainNs;
    if (forced) loaded->provenance = Provenance::kForced;
    return loaded;
  };
  if (stored) {
    if (auto loaded = attempt(*stored)) return with_note(std::move(loaded));
  }
  if (options.policy == Policy::kCachedOnly) attempt.rethrow();
  if (const auto near = near_choice(key, state.facts, state.cache, state.overrides)) {
    if (auto loaded = attempt(*near)) return with_note(std::move(loaded));
  }
  if (auto loaded = attempt(untuned_choice(key, state.facts, state.overrides)))
    return with_note(std::move(loaded));
  for (const Choice& choice : fallback_choices(key, state.facts, state.overrides)) {
    if (auto loaded = attempt(choice)) return with_note(std::move(loaded));
  }
  attempt.rethrow();
}

}  // namespace attnforge
