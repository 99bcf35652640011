// compile_info.h - what the compiler made of a config, for people.
#pragma once

#include "attnforge/inspect.h"
#include "generator/cubin.h"
#include "generator/launch.h"
#include "generator/source.h"

namespace attnforge {

/// Registers, spills, shared memory and blocks on an SM of the config's own kernel; of stored code,
/// whose kernels are not told apart, the most of any.
CompileInfo describe(const Cubin& cubin, const Source& source, const Launch& launch,
                     const Arch& arch);

}  // namespace attnforge
