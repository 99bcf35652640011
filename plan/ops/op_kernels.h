// op_kernels.h - kernels of ops that no plan has, compiled and loaded once for a GPU.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "generator/launch.h"
#include "generator/source.h"
#include "plan/device_state.h"
#include "runtime/loaded_launch.h"

namespace attnforge {

/// Those of source(), which launch() calls, from memory, the database, or the compiler. What they
/// are made of follows from `key`, which no other op has; `purpose` ("makes lists") is for errors.
/// Throws Error(kNotReady) where one would have to be compiled and may not, Error(kCompile),
/// Error(kNoDriver), Error(kCuda). Thread-safe; what it returns lives as long as `state`.
const LoadedKernels& op_kernels(const std::string& key, std::string_view purpose,
                                bool allow_compile, DeviceState& state,
                                const std::function<Source()>& source,
                                const std::function<Launch()>& launch);

}  // namespace attnforge
