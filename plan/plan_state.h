// plan_state.h - what a Plan points to: everything that a run needs, ready before the first one.
#pragma once

#include <cstddef>
#include <string>

#include "attnforge/device.h"
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

/// Bytes that suffice for a plan's config at every batch and lengths up to those of `largest`,
/// which is the plan's problem but for these. Never shrinks when one of them grows. Throws
/// Error(kInvalidProblem) for sizes out of range.
std::size_t workspace_bound(Problem largest, const std::string& config, const DeviceFacts& device);

struct KeyOfPlan {
  PlanKey operator()(const PlanState& plan) const { return plan.key(); }
};

}  // namespace attnforge
