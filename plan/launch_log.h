// launch_log.h - a line for each kernel that plans launch, once (ATTNFORGE_PRINT_LAUNCH).
#pragma once

#include <mutex>
#include <set>
#include <string>

#include "runtime/log.h"

namespace attnforge {

class PlanState;

/// Thread-safe.
class LaunchLog {
 public:
  /// Kernel, grid, block, shared memory, registers, config and problem of each step whose kernel
  /// was not printed before, whatever the level of `log`.
  void print(const PlanState& plan, const Logger& log);

 private:
  std::mutex mutex_;
  std::set<std::string> printed_;  // config and kernel
};

}  // namespace attnforge
