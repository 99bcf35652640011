// loaded_launch.h - a launch with its kernels on the GPU: how plans, the tuner, the oracle and the
// tests run what a family's launch says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/plan.h"
#include "generator/launch.h"
#include "generator/source.h"
#include "runtime/kernel.h"

namespace attnforge {

/// A step with its kernel.
struct LoadedStep {
  const Kernel* kernel = nullptr;
  LaunchStep launch;
};

/// The code of a source on the GPU, by the names that launches call its kernels, and the launch
/// that it was loaded for. Moving keeps kernels and steps where they are.
class LoadedKernels {
 public:
  /// None.
  LoadedKernels() = default;
  /// Loads what `launch` calls, each kernel once. Launches of other sizes may ask for more shared
  /// memory than `launch` does. `image` is the compiled `source`. Throws as Kernel::load().
  LoadedKernels(std::span<const std::byte> image, const Source& source, const Launch& launch);

  bool empty() const { return kernels_.empty(); }
  /// Throws Error(kInternal) for a kernel that was not loaded.
  const Kernel& at(const std::string& name) const;
  /// The steps of that launch.
  const std::vector<LoadedStep>& steps() const { return steps_; }

 private:
  using Named = std::pair<std::string, Kernel>;
  std::vector<Named> kernels_;
  std::vector<LoadedStep> steps_;
};

/// Immutable; may be run from several threads, each with memory of its own. Small, since a server
/// may hold one for each of very many lengths: a step shares with the LoadedKernels all but its
/// grid and the few words of the argument that sizes decide.
class LoadedLaunch {
 public:
  struct Word {
    std::uint32_t offset;  // in the argument
    std::uint32_t value;
  };
  struct Step {
    const LoadedStep* loaded = nullptr;  // of the LoadedKernels, or own
    Dim3 grid;
    // Its words, what differs from loaded->launch.params, end there among those of all steps, and
    // begin where those of the step before end.
    std::uint32_t words_end = 0;
    // Sizes decide where they lie. Null: none, as for nearly all.
    std::unique_ptr<const std::vector<ScratchTensor>> from_workspace;
    std::unique_ptr<const LoadedStep> own;  // where none that was loaded is like it
  };

  /// No steps.
  LoadedLaunch() = default;
  /// Borrows the kernels. Throws Error(kInternal) if a kernel is not among them, an argument does
  /// not fit a run's buffer, or the first step overlaps with what came before the launch.
  LoadedLaunch(const Launch& launch, const LoadedKernels& kernels);

  /// Enqueues all steps in the current context. No allocation, no synchronisation; may be captured.
  /// `memory` has what workspace_bytes() and counted_steps() say. Throws Error(kCuda), and as
  /// bind_arguments().
  void run(const Tensors& tensors, const RunMemory& memory, CUstream stream) const;

  const std::vector<Step>& steps() const { return steps_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  int counted_steps() const { return counted_steps_; }

 private:
  std::vector<Step> steps_;
  std::vector<Word> words_;
  std::size_t workspace_bytes_ = 0;
  int counted_steps_ = 0;
};

}  // namespace attnforge
