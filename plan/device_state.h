// device_state.h - what stands behind a Device: the GPU, its database, and everything that was
// loaded or planned so far.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "attnforge/device.h"
#include "cache/cache.h"
#include "generator/overrides.h"
#include "plan/loaded_kernel.h"
#include "plan/once_map.h"
#include "plan/plan_state.h"
#include "plan/recent_map.h"
#include "plan/said_once.h"
#include "plan/trace.h"
#include "plan/worker_program.h"
#include "runtime/counter_pool.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/loaded_launch.h"
#include "runtime/log.h"

namespace attnforge {

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
  const WorkerChoice worker;  // likewise
  PrimaryContext primary;
  const DeviceFacts facts;  // with the shared memory budget of overrides
  const std::string device_class;
  CUcontext
      context = nullptr;  // the caller's, if it was current and of this GPU, else the primary one
  Cache cache;
  std::optional<Cache> site;  // $ATTNFORGE_SITE_CACHE: read where `cache` has no winner

  RecentMap<PlanState, KeyOfPlan> plans{kPlansKept};
  OnceMap<ChoiceKey, LoadedKernel, ChoiceKeyHash> kernels;  // by the bucket's problem
  OnceMap<std::string, LoadedKernels, std::hash<std::string>> op_kernels;  // plan/ops/op_kernels.h
  CounterPool counters;
  std::timed_mutex tuning;  // one at a time, else they disturb each other's times
  SaidOnce launches, slow_paths, said;
  Trace trace;
  std::atomic<std::uint64_t> compiles = 0, chosen = 0, untuned = 0,
                             shipped = 0;  // attnforge/device.h
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
