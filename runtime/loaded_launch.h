// loaded_launch.h - a launch with its kernels on the GPU: how plans, the tuner, the oracle and the
// tests run what a family asks for.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/plan.h"
#include "generator/launch.h"
#include "generator/source.h"
#include "runtime/kernel.h"

namespace attnforge {

/// The code of a source on the GPU, by the names that launches call its kernels. Moving keeps the
/// kernels where they are.
class LoadedKernels {
 public:
  /// None.
  LoadedKernels() = default;
  /// Loads what `launch` calls, each kernel once and with the most shared memory that a step of its
  /// asks for. `image` is the compiled `source`. Throws as Kernel::load().
  LoadedKernels(std::span<const std::byte> image, const Source& source, const Launch& launch);

  bool empty() const { return kernels_.empty(); }
  /// Throws Error(kInternal) for a kernel that was not loaded.
  const Kernel& at(const std::string& name) const;

 private:
  std::vector<std::pair<std::string, Kernel>> kernels_;
};

/// Immutable; may be run from several threads, each with memory of its own.
class LoadedLaunch {
 public:
  struct Step {
    const Kernel* kernel = nullptr;
    LaunchStep launch;
  };

  /// No steps.
  LoadedLaunch() = default;
  /// Borrows the kernels. Throws Error(kInternal) if a kernel is not among them, an argument does
  /// not fit a run's buffer, or the first step overlaps with what came before the launch.
  LoadedLaunch(Launch launch, const LoadedKernels& kernels);

  /// Enqueues all steps in the current context. No allocation, no synchronisation; may be captured.
  /// `memory` has what workspace_bytes() and counted_steps() say. Throws Error(kCuda), and as
  /// bind_arguments().
  void run(const Tensors& tensors, const RunMemory& memory, CUstream stream) const;

  const std::vector<Step>& steps() const { return steps_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  int counted_steps() const { return counted_steps_; }

 private:
  std::vector<Step> steps_;
  std::size_t workspace_bytes_ = 0;
  int counted_steps_ = 0;
};

}  // namespace attnforge
