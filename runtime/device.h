// device.h - the GPUs of this machine as facts, and the CUDA context that work on one of them uses.
#pragma once

#include <cuda.h>

#include <mutex>
#include <string>
#include <string_view>

#include "attnforge/device.h"

namespace attnforge {

/// Number of CUDA devices; 0 without a usable driver.
int device_count();

/// Facts of one GPU. Creates no context. arch is the table's for its compute capability; for a GPU
/// that attnforge has no kernels for, arch.name is "" and only arch.sm is set. Throws
/// Error(kNoDriver) without a driver, Error(kInvalidArgument) for an ordinal that does not exist.
DeviceFacts device_facts(int ordinal);

/// Who may use the GPU: "default", kExclusiveMode or kProhibitedMode. Throws as device_facts().
inline constexpr std::string_view kExclusiveMode = "exclusive process";
inline constexpr std::string_view kProhibitedMode = "prohibited";
std::string_view compute_mode(int ordinal);

/// Whether the GPU's compute mode lets no second process use it. Throws as device_facts().
bool has_one_process(int ordinal);

/// The MIG profile in a device's name: "1g.18gb" for "NVIDIA H200 MIG 1g.18gb", "" for a whole GPU.
std::string mig_profile(std::string_view device_name);

/// The primary context of one GPU, retained when it is first needed and released on destruction.
/// attnforge never creates another context. Thread-safe; not movable, since ScopedContext borrows
/// it.
class PrimaryContext {
 public:
  /// Throws as device_facts() for a bad ordinal.
  explicit PrimaryContext(int ordinal);
  ~PrimaryContext();
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;

  int ordinal() const { return ordinal_; }
  CUdevice device() const { return device_; }
  /// Retains the context at the first call. Throws Error(kCuda).
  CUcontext get();

 private:
  int ordinal_;
  CUdevice device_ = 0;
  std::mutex mutex_;
  CUcontext context_ = nullptr;
};

/// While it lives, a context of the GPU is current on this thread: the caller's own if that belongs
/// to the GPU (a framework's, or one the user made), else the primary one, pushed and popped again
/// at the end.
class ScopedContext {
 public:
  /// Throws Error(kCuda).
  explicit ScopedContext(PrimaryContext& primary);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace attnforge
