// load_kernel.h - from a bucket's problem to a kernel that is loaded: choose, fetch or compile,
// load; fall back if one fails.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "generator/cubin.h"
#include "generator/launch.h"
#include "generator/source.h"
#include "plan/device_state.h"

namespace attnforge {

/// Whether a kernel that is loaded answers a caller with these options, or the database or the
/// tuner must be asked.
bool good_enough(const LoadedKernel& kernel, const PlanOptions& options);

/// For callers who may tune: whether a provisional kernel's second is over. Cheap.
bool time_to_look_again(const LoadedKernel& kernel, const PlanOptions& options);

/// Marks the provisional kernel of `key` as superseded if no process tunes it any more. Does not
/// wait.
void look_again(const ChoiceKey& key, DeviceState& state);

/// The whole way for a bucket that is not loaded yet, or not well enough. Slow. `called` is when
/// make_plan was: the time limit is counted from there. `asked`: what it was called for. Throws as
/// make_plan.
std::unique_ptr<LoadedKernel> choose_and_load(const ChoiceKey& key, const Problem& asked,
                                              const PlanOptions& options, DeviceState& state,
                                              std::chrono::steady_clock::time_point called);

/// Throws Error(kUnsupported) for a GPU that there are no kernels for.
void require_arch(const DeviceFacts& device);

/// Code that was compiled before from the same source for the same arch; by `nvrtc` (a version
/// text) rather than by another, "": by any. Opens no compiler. Never throws for a broken database.
std::optional<Cubin> stored_cubin(const std::string& source_digest, const Arch& arch,
                                  const std::string& nvrtc, Cache& cache);

/// Throws Error(kCompile), Error(kNoDriver) without NVRTC. A database that cannot be written is a
/// log line. What a user's texts are in is compiled by `program`, if there is one: it may have no
/// end, or crash NVRTC.
Cubin compile_and_store(const Source& source, const Arch& arch, Cache& cache, const Logger& log,
                        const WorkerProgram& program = {});
/// The same for a GPU, counted in its stats.
Cubin compile_and_store(const Source& source, DeviceState& state);

/// What `launch` calls: of `stored` code where there is some that loads, else compiled now and put
/// into the database. not_ready() throws where it would have to be and must not. `name` is for the
/// log. Throws Error(kCompile), Error(kNoDriver) without NVRTC, Error(kCuda).
LoadedKernels load_code(const Source& source, const Launch& launch,
                        const std::optional<Cubin>& stored, bool may_compile,
                        const std::string& name, const std::function<void()>& not_ready,
                        DeviceState& state);

}  // namespace attnforge
