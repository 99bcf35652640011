// device.h - what is known of a GPU: facts as plain data, and the opened Device that plans are made
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/cxx20.h"

namespace attnforge {

/// Limits and features of a compute capability. The table is in generator/arch.cpp.
struct Arch {
  int sm = 0;             // 80, 86, 89, 90, 100, 120
  std::string_view name;  // the name that NVRTC is given, after "sm_": "80", "90a", "100a"; "": a
                          // GPU without kernels
  int smem_per_block_bytes = 0;  // opt-in limit of dynamic shared memory
  int smem_per_sm_bytes = 0;
  int registers_per_sm = 65536;
  int max_threads_per_sm = 0;
  int max_blocks_per_sm = 0;
  int mma_fma_per_clock_per_sm = 0;  // fp16 mma.sync with fp32 accumulation: fused multiply-adds an
                                     // SM finishes a clock; TF32 has half of it
  int fp32_fma_per_clock_per_sm = 0;  // of the CUDA cores
  int l2_bytes_per_clock_per_sm = 0;  // that all SMs together read, each
  bool cp_async = false;
  bool tma = false;
  bool wgmma = false;

  friend bool operator==(const Arch&, const Arch&) = default;
};

/// A GPU as data: filled by the driver for one that is present, from a table for one that is not.
struct DeviceFacts {
  Arch arch{};
  std::string name{};  // "NVIDIA H200"
  std::string uuid{};  // "" when not present
  int ordinal = -1;    // CUDA device number; -1 when not present
  int num_sms = 0;
  std::int64_t l2_bytes = 0;
  std::int64_t memory_bytes = 0;
  int sm_clock_mhz = 0;      // maximum
  int memory_clock_mhz = 0;  // maximum
  int memory_bus_bits = 0;
  int driver_version = 0;     // as cuDriverGetVersion: 13000; 0 when not present
  std::string mig_profile{};  // "" when not a MIG instance
};

/// GPUs of this machine, by CUDA ordinal. Empty without a driver; never throws for a missing one.
ATTNFORGE_API std::vector<DeviceFacts> enumerate_devices();

/// A typical GPU of an arch ("86", "sm_86", "90a"), for planning without it. Throws
/// Error(kInvalidArgument).
ATTNFORGE_API const DeviceFacts& typical_device(std::string_view arch);
/// All archs that attnforge knows, e.g. {"80", "86", "89", "90a", "100a", "120a"}.
ATTNFORGE_API std::vector<std::string_view> known_archs();

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };
using LogFunction = std::function<void(LogLevel, std::string_view message)>;

struct DeviceOptions {
  int ordinal = 0;
  std::string cache_path{};  // SQLite file; "": $ATTNFORGE_CACHE, else
                             // $XDG_CACHE_HOME/attnforge/attnforge.db; ":memory:": none on disk
  LogFunction log{};  // called from any thread; level from $ATTNFORGE_LOG (debug, info, warning,
                      // error, off); default warning
  bool read_only_cache = false;
};

class DeviceState;  // plan/device_state.h

/// One GPU opened for attnforge: its facts, its cache, the kernels loaded so far. Uses the caller's
/// current CUDA context if it belongs to this GPU, else the primary context. Thread-safe. Plans
/// made from it must not outlive it.
class ATTNFORGE_API Device {
 public:
  /// Throws Error(kNoDriver) without a driver or GPU, Error(kInvalidArgument) for a bad ordinal. A
  /// database that cannot be opened is logged and replaced by one in memory.
  explicit Device(const DeviceOptions& options = {});
  ~Device();
  Device(Device&&) noexcept;
  Device& operator=(Device&&) noexcept;

  const DeviceFacts& facts() const;

 private:
  friend DeviceState& state_of(Device& device);
  std::unique_ptr<DeviceState> state_;
};

/// What a device has done for plans so far: to assert that serving compiles nothing and runs
/// nothing that was not tuned.
struct Stats {
  std::uint64_t compiles = 0;       // by NVRTC, of a search's tries only the winner's
  std::uint64_t plans = 0;          // for problems whose bucket had none yet
  std::uint64_t untuned_plans = 0;  // of these, those that Policy::kCachedOnly would have refused
  std::uint64_t shipped_plans = 0;  // of these, those that go by a winner that ships
};

/// Thread-safe; never throws but in a forked child.
ATTNFORGE_API Stats stats(Device& device);

}  // namespace attnforge
