// plan.cpp - make_plan: from memory where it can; Plan::run: checks pointers and launches.
#include "attnforge/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "generator/problem/bucket.h"
#include "generator/text/throw_error.h"
#include "plan/checks/input_check.h"
#include "plan/checks/option_checks.h"
#include "plan/choice/choice.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/load_kernel.h"
#include "plan/plan_state.h"
#include "runtime/memory.h"
#include "runtime/nvtx.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

/// What is legal for the bucket of batch_invariant problems is so for each batch that the GPU has
/// memory and grids for.
void require_legal(const LoadedKernel& loaded, const Problem& problem, const DeviceState& state) {
  const std::string wrong = illegal(loaded.config, problem, state.facts);
  if (wrong.empty()) return;
  throw_error(ErrorCode::kUnsupported,
              "\"{}\" was chosen for batch_invariant problems of every batch, but not "
              "for \"{}\": {}",
              loaded.config_text, to_string(problem), wrong);
}

/// So that no run of the kernel's plans need do it: one may be captured.
void reserve_counters(const LoadedKernel& loaded, DeviceState& state) {
  if (std::ranges::none_of(loaded.kernels.steps(), needs_counters, &LoadedStep::launch)) return;
  const ContextScope scope(state.context);
  state.counters.reserve();
}

std::string text(const Dim3& size) { return fmt::format("{}x{}x{}", size.x, size.y, size.z); }

/// Logs kernel, grid, block, shared memory, registers, config and problem of each step whose kernel
/// was not logged before, whatever the level (ATTNFORGE_PRINT_LAUNCH).
void print_launches(const PlanState& plan, DeviceState& state) {
  const ContextScope scope(state.context);
  for (const LoadedLaunch::Step& step : plan.launch.steps()) {
    const LaunchStep& launch = step.loaded->launch;
    if (!state.launches.first(plan.loaded->config_text + ' ' + launch.kernel)) continue;
    const Kernel::Attributes kernel = step.loaded->kernel->attributes();
    const std::string& forced = state.overrides.kernel_name;
    state.log.announce(fmt::format(
        "launch {}{} grid={} block={} smem_bytes={} registers={} local_bytes={} config=\"{}\" "
        "problem=\"{}\"",
        launch.kernel, forced.empty() ? "" : " as " + forced, text(step.grid), text(launch.block),
        launch.smem_bytes + kernel.smem_static_bytes, kernel.registers, kernel.local_bytes,
        describe_config(plan.loaded->config_text), to_string(plan.problem)));
  }
}

/// The slow half of make_plan: the exact problem is new. Its bucket may be known; then only the
/// launch is computed. `hash`: of its PlanKey.
std::shared_ptr<const PlanState> plan_for_new_sizes(const Problem& problem, DeviceState& state,
                                                    const PlanOptions& options, std::size_t hash) {
  validate(problem);
  require_seconds("time_limit_s", options.time_limit_s);
  require_arch(state.facts);
  const ChoiceKey key{bucket(problem), options.family, options.config};
  const LoadedKernel* loaded = state.kernels.find(key);
  if (loaded == nullptr || time_to_look_again(*loaded, options) || !good_enough(*loaded, options)) {
    const auto called = std::chrono::steady_clock::now();
    if (loaded != nullptr && time_to_look_again(*loaded, options)) look_again(key, state);
    loaded = &state.kernels.find_or_make(
        key, [&](const LoadedKernel& kernel) { return good_enough(kernel, options); },
        [&] {
          state.trace.add(key.problem, state.log);
          warn_of_slow_path(key, state);
          std::unique_ptr<LoadedKernel> made = choose_and_load(key, problem, options, state,
                                                               called);
          ++state.chosen;
          if (made->layer == Layer::kShipped) ++state.shipped;
          if (made->provenance != Provenance::kForced &&
              !good_enough(*made, {.policy = Policy::kCachedOnly}))
            ++state.untuned;
          reserve_counters(*made, state);
          return made;
        });
  }
  if (problem.batch_invariant) require_legal(*loaded, problem, state);
  auto made = std::make_shared<const PlanState>(problem, *loaded, state);
  if (state.overrides.print_launch) print_launches(*made, state);
  return state.plans.put(std::move(made), hash);
}

}  // namespace

Stats stats(Device& device) {
  const DeviceState& state = state_of(device);
  return {.compiles = state.compiles,
          .plans = state.chosen,
          .untuned_plans = state.untuned,
          .shipped_plans = state.shipped};
}

PlanState::PlanState(const Problem& problem_, const LoadedKernel& loaded_, DeviceState& device_)
    : problem(problem_), loaded(&loaded_), device(&device_) {
  launch = LoadedLaunch(loaded->family->launch(loaded->config, problem, device->facts),
                        loaded->kernels);
  check = PointerCheck(problem);
}

std::size_t workspace_bound(Problem largest, const std::string& config_text,
                            const DeviceFacts& device) {
  // The layout only says how attnforge would allocate; it must not bind the two lengths to each
  // other here.
  if (largest.layout == Layout::kPackedQkv) largest.layout = Layout::kBshd;
  validate(largest);
  const Config config = parse_config(config_text);
  const Family* family = find_family(config.family);
  ATTNFORGE_ASSERT(family != nullptr, "the config of a plan is of a family of this build");
  // A batch below its bucket's may have more splits of the keys than a larger one, but no more in
  // all than the bucket's; for those of many rows each launch has room
  // (templates/host/split_counts.h: splits_of_launch(), most_partial_rows()).
  Problem of_bucket = largest;
  of_bucket.batch = bucket_batch(largest.batch);
  if (of_bucket.mask_batch != 1) of_bucket.mask_batch = of_bucket.batch;
  if (largest.op == Op::kForward && !largest.batch_invariant && products_within_limits(of_bucket) &&
      family->supports(of_bucket, device.arch).empty())
    largest = of_bucket;
  // Launches of products are not made of more than that.
  if (const std::string no = family->supports(largest, device.arch);
      family->tier == Tier::kProduct && !no.empty())
    throw_error(ErrorCode::kUnsupported, "{} does not serve so many rows: {}", family->name, no);
  // That a family's workspace grows with batch and lengths is a rule for families
  // (docs/ADDING_A_FAMILY.md) that a test checks.
  return family->launch(config, largest, device).workspace_bytes;
}

Plan make_plan(const Problem& problem, Device& device, const PlanOptions& given) {
  DeviceState& state = state_of(device);
  PlanOptions options = given;
  if (given.policy == Policy::kFirstRun && given.stream != nullptr) {
    const ContextScope scope(state.context);
    if (is_captured(static_cast<CUstream>(given.stream))) options.policy = Policy::kEstimate;
  }
  const PlanKey asked{problem, options.family, options.config};
  const std::size_t hash = hash_of(asked);
  std::shared_ptr<const PlanState> known = state.plans.find(asked, hash);
  if (known != nullptr && good_enough(*known->loaded, options)) {
    if (time_to_look_again(*known->loaded, options))
      look_again({bucket(problem), options.family, options.config}, state);
    if (good_enough(*known->loaded, options)) return Plan(std::move(known));
  }
  const NvtxRange range("attnforge plan");
  return Plan(plan_for_new_sizes(problem, state, options, hash));
}

void Plan::run(const Tensors& tensors, void* workspace, void* stream) const {
  const PlanState& plan = *state_;
  if (plan.launch.steps().empty()) return;
  plan.check(plan.problem, tensors, workspace, plan.launch.workspace_bytes());
  const NvtxRange range("attnforge run");
  const ContextScope scope(plan.device->context);
  const auto queue = static_cast<CUstream>(stream);
  if (plan.device->overrides.check_inputs && !is_captured(queue))
    check_run_arrays(plan.problem, tensors, queue);
  RunMemory memory{.workspace = workspace};
  if (const int counted = plan.launch.counted_steps(); counted > 0)
    memory.counters = plan.device->counters.of(queue, counted);
  plan.launch.run(tensors, memory, queue);
}

std::size_t Plan::workspace_bytes() const { return state_->launch.workspace_bytes(); }
const Problem& Plan::problem() const { return state_->problem; }
std::string Plan::config() const { return state_->loaded->config_text; }
Provenance Plan::provenance() const { return state_->loaded->provenance; }
Layer Plan::layer() const { return state_->loaded->layer; }
double Plan::measured_us() const { return state_->loaded->measured_us; }

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kEstimate:
      return "estimate";
    case Policy::kFirstRun:
      return "first_run";
    case Policy::kCachedOnly:
      return "cached_only";
  }
  return "unknown";
}

}  // namespace attnforge
