// kernels.h - kernels of no family: their source is all that decides their code.
#pragma once

#include <memory>
#include <string_view>

#include "generator/launch.h"
#include "generator/source.h"
#include "plan/device_state.h"
#include "runtime/loaded_launch.h"

namespace attnforge {

/// The kernels that `launch` calls, from the database, or compiled now and put there. `purpose`
/// ("merges states") is for errors. Throws Error(kNotReady) where compiling would be needed and is
/// forbidden, Error(kUnsupported) for a GPU without kernels, Error(kCompile), Error(kNoDriver),
/// Error(kCuda).
std::unique_ptr<LoadedKernels> load_side_kernels(const Source& source, const Launch& launch,
                                                 std::string_view purpose, bool allow_compile,
                                                 DeviceState& state);

}  // namespace attnforge
