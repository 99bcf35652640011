// tune_bucket.cpp - tuning on the GPU of a Device: the public tune(), and first-run plans.
#include "plan/tune_bucket.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "plan/context_scope.h"
#include "runtime/compiler.h"
#include "runtime/nvtx.h"
#include "templates/registry.h"
#include "tuner/in_process_evaluator.h"
#include "tuner/tune.h"

namespace attnforge {
namespace {

TuneResult tune_key(const ChoiceKey& key, const TuneOptions& options, DeviceState& state) {
  const Overrides& overrides = state.overrides;
  const std::vector<const Family*> families = families_named(key.family, overrides);
  const std::vector<Candidate> all = candidates(families, key.problem, state.facts, overrides);
  if (all.empty())
    untuned(families, key.problem, state.facts,
            overrides);  // throws Error(kUnsupported) with the reasons

  const std::lock_guard one_at_a_time(state.tuning);
  const ContextScope scope(state.context);
  const std::string text = stored_as(key.problem, overrides);
  const NvtxRange range("attnforge tune", text);
  state.log.info(fmt::format("tuning \"{}\": {} candidates", text, all.size()));
  const std::unique_ptr<Evaluator> evaluator = make_in_process_evaluator(
      key.problem, state.facts, state.cache, options.compile_threads, options.seed, overrides);
  TuneResult result = tune_problem(key.problem, state.facts, state.cache, *evaluator, all, options,
                                   {.driver = driver_text(state.facts),
                                    .nvrtc = nvrtc_facts().version_text(),
                                    .stored_as = text,
                                    .log = state.log_function(),
                                    .now_s = {},
                                    .sleep_s = {}});
  state.log.info(fmt::format(
      "tuned \"{}\" in {:.1f} s: {} at {:.2f} us ({} tried, {} failed, {} known before)", text,
      result.elapsed_s, result.winner.empty() ? "nothing worked" : result.winner, result.winner_us,
      result.tried, result.failed, result.reused));
  return result;
}

}  // namespace

std::optional<Choice> first_run(const ChoiceKey& key, const PlanOptions& options,
                                DeviceState& state) {
  TuneOptions tune_options;
  tune_options.time_limit_s = options.time_limit_s;
  tune_options.family = key.family;
  tune_options.on_progress = options.on_progress;
  try {
    const TuneResult result = tune_key(key, tune_options, state);
    if (result.winner.empty()) {
      state.log.warning(
          fmt::format("no config of \"{}\" worked within {} s; the plan goes on with an estimate",
                      to_string(key.problem), options.time_limit_s));
      return std::nullopt;
    }
    Config config = parse_config(result.winner);
    return Choice{.family = find_family(config.family),
                  .config = std::move(config),
                  .provenance = Provenance::kMeasured,
                  .measured_us = result.winner_us,
                  .nvrtc = nvrtc_facts().version_text(),
                  .why = "it won the tuning that this plan started"};
  } catch (const Error& error) {
    state.log.warning(fmt::format("\"{}\" was not tuned and the plan goes on with an estimate: {}",
                                  to_string(key.problem), error.what()));
    return std::nullopt;
  }
}

TuneResult tune(const Problem& problem, Device& device, const TuneOptions& options) {
  validate(problem);
  DeviceState& state = device.state();
  const ChoiceKey key{bucket(problem), options.family, ""};
  TuneResult result = tune_key(key, options, state);
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
