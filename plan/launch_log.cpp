#include "plan/launch_log.h"

#include <fmt/format.h>

#include "attnforge/inspect.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/plan_state.h"

namespace attnforge {
namespace {

std::string text(const Dim3& size) { return fmt::format("{}x{}x{}", size.x, size.y, size.z); }

}  // namespace

void LaunchLog::print(const PlanState& plan, const Logger& log) {
  const ContextScope scope(plan.device->context);
  for (const LoadedLaunch::Step& step : plan.launch.steps()) {
    const LaunchStep& launch = step.loaded->launch;
    {
      const std::lock_guard lock(mutex_);
      if (!printed_.insert(plan.loaded->config_text + ' ' + launch.kernel).second) continue;
    }
    const Kernel::Attributes kernel = step.loaded->kernel->attributes();
    const std::string& forced = plan.device->overrides.kernel_name;
    log.announce(fmt::format(
        "launch {}{} grid={} block={} smem_bytes={} registers={} local_bytes={} config=\"{}\" "
        "problem=\"{}\"",
        launch.kernel, forced.empty() ? "" : " as " + forced, text(step.grid), text(launch.block),
        launch.smem_bytes + kernel.smem_static_bytes, kernel.registers, kernel.local_bytes,
        describe_config(plan.loaded->config_text), to_string(plan.problem)));
  }
}

}  // namespace attnforge
