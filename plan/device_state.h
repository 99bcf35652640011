// device_state.h - what stands behind a Device: the GPU, its database, and everything that was
// loaded or planned so far.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "attnforge/device.h"
#include "cache/cache.h"
#include "generator/overrides.h"
#include "plan/loaded_kernel.h"
#include "plan/once_map.h"
#include "plan/plan_state.h"
#include "plan/recent_map.h"
#include "runtime/counter_pool.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/loaded_launch.h"
#include "runtime/log.h"

namespace attnforge {

/// Texts that are worth saying once. Thread-safe. Keeps every text: for as many as there are
/// buckets or kernels, not as there are runs.
class SaidOnce {
 public:
  /// Whether `text` is new.
  bool first(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return said_.insert(text).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

/// Thread-safe. Kernels are kept until the end, since plans point to them. A plan is kept while
/// someone holds it, and the latest kPlansKept besides: with about half a KiB each, a server that
/// sees a million different lengths keeps a few MiB of them.
class DeviceState {
 public:
  static constexpr std::size_t kPlansKept = 4096;

  /// Throws as Device().
  explicit DeviceState(const DeviceOptions& options);

  /// `log` for those who take a function; borrows.
  LogFunction log_function() const;

  const Logger log;
  const Overrides overrides;  // as the environment was when this was made
  PrimaryContext primary;
  const DeviceFacts facts;  // with the shared memory budget of overrides
  const std::string device_class;
  CUcontext
      context = nullptr;  // the caller's, if it was current and of this GPU, else the primary one
  Cache cache;

  RecentMap<PlanState, KeyOfPlan> plans{kPlansKept};
  OnceMap<ChoiceKey, LoadedKernel, ChoiceKeyHash> kernels;  // by the bucket's problem
  OnceMap<std::string, LoadedKernels, std::hash<std::string>>
      block_kernels;  // plan/ops/block_lists.h
  CounterPool counters;
  std::timed_mutex tuning;  // one at a time, else they disturb each other's times
  SaidOnce launches, slow_paths;
};

/// Throws Error(kCuda) in a forked child: its parent's threads may hold locks of the state, and the
/// database's connection and leases are the parent's.
inline DeviceState& state_of(Device& device) {
  driver();
  return *device.state_;
}

/// Text of a driver's version for provenance, e.g. "13.0".
std::string driver_text(const DeviceFacts& facts);

}  // namespace attnforge
