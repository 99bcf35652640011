// kernel.h - Cubin -> Kernel: a loaded function and its launch.
#pragma once

#include <span>

#include "generator/cubin.h"
#include "generator/launch.h"
#include "runtime/driver.h"

namespace attnforge {

/// Owns a loaded library of one kernel. Load at plan time only: never inside a stream capture. Move-only.
class Kernel {
 public:
  /// Loads `cubin` (or PTX text as bytes ending in 0) in the current context and makes the function ready: dynamic
  /// shared memory limit raised to `smem_bytes`, module loaded. Throws Error(kCuda).
  static Kernel load(std::span<const std::byte> image, const std::string& symbol, int smem_bytes);
  ~Kernel();
  Kernel(Kernel&& other) noexcept;
  Kernel& operator=(Kernel&& other) noexcept;

  struct Attributes {
    int registers = 0;
    int local_bytes = 0;
    int smem_static_bytes = 0;
    int max_threads = 0;
    int blocks_per_sm = 0;  // of the launch it was loaded for is not known here: see occupancy()
  };
  Attributes attributes() const;
  int occupancy(int threads, int smem_bytes) const;

  /// Enqueues one step with `params` as the kernel's one argument. No allocation, no synchronisation.
  void launch(const LaunchStep& step, std::span<const std::byte> params, CUstream stream) const;

 private:
  CUlibrary library_ = nullptr;
  CUfunction function_ = nullptr;
};

}  // namespace attnforge
