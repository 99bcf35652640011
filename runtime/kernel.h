// kernel.h - Cubin -> Kernel: a loaded function and its launch.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <type_traits>

#include "generator/cubin.h"
#include "generator/launch.h"
#include "runtime/release.h"

namespace attnforge {

/// Owns a loaded library of one kernel. Load at plan time only: never inside a stream capture.
/// Move-only. A const Kernel may be launched from several threads.
class Kernel {
 public:
  /// Loads `image` (a cubin, or PTX text as bytes ending in 0) in the current context and makes the
  /// function ready: launches may ask for any dynamic shared memory that the GPU has, an SM
  /// prefers it to L1 if `smem_bytes`, what launches usually ask for, is not 0, and the code is
  /// loaded on the GPU. The bytes are copied. Throws Error(kCuda), e.g. when the image is for
  /// another GPU, has no such symbol or wants more shared memory than there is; Error(kInternal)
  /// when the function takes no argument.
  static Kernel load(std::span<const std::byte> image, const std::string& symbol, int smem_bytes);

  struct Attributes {
    int registers = 0;          // per thread
    int local_bytes = 0;        // per thread: stack and spills
    int smem_static_bytes = 0;  // per block
    int max_threads = 0;        // per block, as limited by registers and __launch_bounds__
  };
  Attributes attributes() const;

  /// Enqueues one step on `grid` instead of its own, with `params` as the kernel's one argument. No
  /// allocation, no synchronisation; may be captured. Throws Error(kCuda) naming the geometry,
  /// Error(kInternal) if params is not of the argument's size.
  void launch(const LaunchStep& step, const Dim3& grid, std::span<const std::byte> params,
              CUstream stream) const;
  void launch(const LaunchStep& step, std::span<const std::byte> params, CUstream stream) const {
    launch(step, step.grid, params, stream);
  }

  /// The driver's handle, valid in the context that was current at load.
  CUfunction function() const { return function_; }

 private:
  struct Unload {
    void operator()(CUlibrary library) const {
      release([&](const Driver& cuda) { cuda.cuLibraryUnload(library); });
    }
  };

  std::unique_ptr<std::remove_pointer_t<CUlibrary>, Unload> library_;
  CUfunction function_ = nullptr;
  std::size_t params_bytes_ = 0;  // 0: the driver is too old to tell
};

}  // namespace attnforge
