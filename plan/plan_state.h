// plan_state.h - what a Plan points to: everything that a run needs, ready before the first one.
#pragma once

#include "attnforge/plan.h"
#include "plan/checks/pointer_check.h"
#include "plan/loaded_kernel.h"
#include "runtime/loaded_launch.h"

namespace attnforge {

class DeviceState;

/// Immutable once made; shared by the Plans of a problem and, for a while, its DeviceState, which
/// must outlive every run.
class PlanState {
 public:
  PlanState(const Problem& problem, const LoadedKernel& loaded, DeviceState& device);

  PlanKey key() const { return {problem, loaded->asked_family, loaded->asked_config}; }

  Problem problem;
  const LoadedKernel* loaded = nullptr;
  DeviceState* device = nullptr;
  PointerCheck check;
  LoadedLaunch launch;
};

/// Logs kernel, grid, block, shared memory, registers, config and problem of each step whose kernel
/// was not logged before, whatever the level (ATTNFORGE_PRINT_LAUNCH).
void print_launches(const PlanState& plan, DeviceState& state);

struct KeyOfPlan {
  PlanKey operator()(const PlanState& plan) const { return plan.key(); }
};

}  // namespace attnforge
