// launch_log.cpp - a line for each kernel that plans launch, once (ATTNFORGE_PRINT_LAUNCH).
#include <fmt/format.h>

#include "attnforge/inspect.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/plan_state.h"

namespace attnforge {
namespace {

std::string text(const Dim3& size) { return fmt::format("{}x{}x{}", size.x, size.y, size.z); }

}  // namespace

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

}  // namespace attnforge
